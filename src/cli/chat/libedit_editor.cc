// Lines edited by libedit, with history. It reads UTF-8 whatever the environment's locale, as the
// model does; a pasted text is one piece; a resized window is drawn anew.
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "cli/chat/line_editor.h"
#include "cli/terminal.h"

namespace moeflux {
namespace {

constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";

/// Letters of UTF-8, for one thread at a time; numbers stay as they are.
class Utf8Letters {
 public:
  Utf8Letters() {
    for (const char* name : {"C.UTF-8", "C.utf8", "UTF-8", "en_US.UTF-8", ""}) {
      locale_ = ::newlocale(LC_CTYPE_MASK, name, locale_t{});
      if (locale_ != locale_t{}) return;
    }
  }
  ~Utf8Letters() {
    if (locale_ != locale_t{}) ::freelocale(locale_);
  }
  Utf8Letters(const Utf8Letters&) = delete;
  Utf8Letters& operator=(const Utf8Letters&) = delete;

  class Scope {
   public:
    explicit Scope(const Utf8Letters& letters)
        : before_(letters.locale_ == locale_t{} ? locale_t{} : ::uselocale(letters.locale_)) {}
    ~Scope() {
      if (before_ != locale_t{}) ::uselocale(before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    locale_t before_;
  };

 private:
  locale_t locale_{};
};

struct WindowSize {
  int rows = 0;
  int columns = 0;
  friend bool operator==(const WindowSize&, const WindowSize&) = default;
};

WindowSize window_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_row, size.ws_col};
}

void ignore_signal(int) {}

/// Lets SIGWINCH through only while wait() waits, so that none is missed. Bytes that are read in
/// between lie in a buffer.
class TerminalInput {
 public:
  TerminalInput() {
    sigset_t resized;
    sigemptyset(&resized);
    sigaddset(&resized, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &resized, &before_);
    struct sigaction action = {};
    action.sa_handler = ignore_signal;  // without one the signal would not end a wait
    sigaction(SIGWINCH, &action, &action_before_);
  }
  ~TerminalInput() {
    sigaction(SIGWINCH, &action_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

  enum class Event { kByte, kResized, kEnd };
  /// The next byte, unless a signal comes first.
  Event wait(char& byte) {
    if (at_ == end_) {
      fd_set input;
      FD_ZERO(&input);
      FD_SET(STDIN_FILENO, &input);
      sigset_t waiting{};  // others may have been blocked since: they stay so
      pthread_sigmask(SIG_BLOCK, nullptr, &waiting);
      sigdelset(&waiting, SIGWINCH);
      const int ready = ::pselect(STDIN_FILENO + 1, &input, nullptr, nullptr, nullptr, &waiting);
      if (ready < 0 && errno == EINTR) return Event::kResized;
      ssize_t n = 0;
      while ((n = ::read(STDIN_FILENO, buffer_.data(), buffer_.size())) < 0 && errno == EINTR) {
      }
      if (n <= 0) return Event::kEnd;
      at_ = 0;
      end_ = static_cast<size_t>(n);
    }
    byte = buffer_[at_++];
    return Event::kByte;
  }

 private:
  sigset_t before_{};
  struct sigaction action_before_ = {};
  std::array<char, 4096> buffer_{};
  size_t at_ = 0;
  size_t end_ = 0;
};

class LibeditEditor : public LineEditor {
 public:
  explicit LibeditEditor(ChatHistory kept) : kept_(std::move(kept)) {
    const char* const terminal = std::getenv("TERM");
    knows_sequences_ =
        terminal != nullptr && terminal[0] != '\0' && std::string_view(terminal) != "dumb";
    has_settings_ = ::tcgetattr(STDIN_FILENO, &settings_) == 0;
    const Utf8Letters::Scope scope(letters_);
    editor_ = el_init("moeflux", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, static_cast<int>(ChatHistory::kEntriesMax));
    for (const std::string& entry : kept_.load()) {
      history(history_, &event, H_ENTER, entry.c_str());
    }
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &LibeditEditor::prompt_of);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_GETCFN, &LibeditEditor::read_letter);
    // A Ctrl-C comes as a character and empties the line.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    // Both characters of a line's end come as they are: libedit would swap them.
    el_set(editor_, EL_SETTY, "-d", "-icrnl", "-inlcr", nullptr);
    // Text typed or pasted while an answer is written waits as it came for the next prompt: the
    // terminal neither shows it in the answer nor divides it into lines. Ctrl-C stays a signal.
    el_set(editor_, EL_SETTY, "-x", "-icanon", "-echo", "-icrnl", "-inlcr", nullptr);
    el_set(editor_, EL_BIND, "^C", "ed-start-over", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // The function for wide strings keeps pointers; el_set() copies them and frees no copy.
    el_wset(editor_, EL_ADDFN, L"paste", L"Inserts a pasted text", &LibeditEditor::paste);
    el_set(editor_, EL_BIND, kPasteBegin.data(), "paste", nullptr);
  }
  ~LibeditEditor() override {
    if (knows_sequences_) (void)print_out(kPasteOff);
    el_end(editor_);
    history_end(history_);
    // libedit leaves what it was told to set between lines.
    if (has_settings_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &settings_);
  }
  LibeditEditor(const LibeditEditor&) = delete;
  LibeditEditor& operator=(const LibeditEditor&) = delete;

  std::optional<std::string> read(const std::string& prompt) override {
    const Utf8Letters::Scope scope(letters_);
    prompt_ = prompt;
    was_pasted_ = false;
    // It stays on while the answer is written: a text that is pasted then is one piece, too.
    if (knows_sequences_) (void)print_out(kPasteOn);
    adopt_size();
    int count = 0;
    const char* line = el_gets(editor_, &count);
    if (line == nullptr || count <= 0) return std::nullopt;
    std::string_view text(line, static_cast<size_t>(count));
    if (text.ends_with('\n')) text.remove_suffix(1);
    was_pasted_ = was_pasted_ && text.find('\n') != std::string_view::npos;
    return std::string(text);
  }
  bool was_pasted() const override { return was_pasted_; }
  bool takes_interrupts() const override { return true; }
  void remember(const std::string& text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
    kept_.add(text);
  }
  void give_terminal_back() override {
    if (knows_sequences_) (void)!::write(STDOUT_FILENO, kPasteOff.data(), kPasteOff.size());
    if (has_settings_) ::tcsetattr(STDIN_FILENO, TCSANOW, &settings_);
  }

 private:
  static LibeditEditor& self_of(EditLine* editor) {
    LibeditEditor* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *self;
  }
  static char* prompt_of(EditLine* editor) { return self_of(editor).prompt_.data(); }

  /// 1, or 0 at the end of the input.
  static int read_letter(EditLine* editor, wchar_t* letter) {
    LibeditEditor& self = self_of(editor);
    mbstate_t state = {};
    while (true) {
      char byte = 0;
      switch (self.input_.wait(byte)) {
        case TerminalInput::Event::kEnd:
          return 0;
        case TerminalInput::Event::kResized:
          self.redraw();
          continue;
        case TerminalInput::Event::kByte:
          break;
      }
      constexpr auto kInvalid = static_cast<size_t>(-1);
      size_t used = ::mbrtowc(letter, &byte, 1, &state);
      if (used == kInvalid) {
        // Bytes that are no UTF-8 are left out; this one may begin a letter.
        state = {};
        used = ::mbrtowc(letter, &byte, 1, &state);
        if (used == kInvalid) state = {};
      }
      if (used <= 1) return 1;
    }
  }

  /// Inserts what comes up to the end of a pasted text.
  static unsigned char paste(EditLine* editor, int) {
    LibeditEditor& self = self_of(editor);
    std::wstring text;
    wchar_t letter = 0;
    while (!text.ends_with(kPasteEnd)) {
      if (read_letter(editor, &letter) != 1) return CC_EOF;
      // Terminals send the key for a line's end, or both of its characters.
      if (letter == L'\r') {
        text += L'\n';
      } else if (letter != L'\0' && !(letter == L'\n' && self.last_pasted_ == L'\r')) {
        text += letter;
      }
      self.last_pasted_ = letter;
    }
    text.erase(text.size() - kPasteEnd.size());
    while (text.ends_with(L'\n')) text.pop_back();
    const LineInfoW* const line = el_wline(editor);
    if (line->cursor == line->buffer && text.find(L'\n') != std::wstring::npos) {
      self.was_pasted_ = true;
    }
    if (text.empty()) return CC_NORM;
    return el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  void adopt_size() {
    const WindowSize size = window_size();
    if (size == size_) return;
    size_ = size;
    el_resize(editor_);
  }

  /// Draws the line anew if the window has another size. Terminals fold lines anew themselves, so
  /// that the cursor is as many rows below the prompt as the text before it takes now.
  void redraw() {
    if (window_size() == size_) return;
    if (knows_sequences_) {
      const int rows = rows_before_cursor(window_size().columns);
      (void)print_out("\r");
      if (rows > 0) (void)print_out("\x1b[" + std::to_string(rows) + "A");
      (void)print_out("\x1b[J");
    }
    adopt_size();
    el_set(editor_, EL_REFRESH);
  }

  int rows_before_cursor(int columns) const {
    if (columns <= 0) return 0;
    int row = 0;
    int column = static_cast<int>(prompt_.size());
    const LineInfoW* const line = el_wline(editor_);
    for (const wchar_t* at = line->buffer; at < line->cursor; ++at) {
      if (*at == L'\n') {
        ++row;
        column = 0;
        continue;
      }
      constexpr int kTab = 8;
      // A character without width is shown as ^X.
      const int width = *at == L'\t' ? kTab - column % kTab : ::wcwidth(*at);
      column += width < 0 ? 2 : width;
      if (column > columns) column = std::max(width, 1) + columns;  // a wide one is not divided
      if (column >= columns) {
        ++row;
        column -= columns;
      }
    }
    return row;
  }

  const Utf8Letters letters_;
  TerminalInput input_;
  const ChatHistory kept_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
  WindowSize size_;
  termios settings_{};
  bool has_settings_ = false;
  bool knows_sequences_ = false;  // what the terminal does not know would be shown
  bool was_pasted_ = false;
  wchar_t last_pasted_ = 0;
};

}  // namespace

std::unique_ptr<LineEditor> make_libedit_editor(ChatHistory history) {
  return std::make_unique<LibeditEditor>(std::move(history));
}

}  // namespace moeflux
