// Lines edited by libedit, with history.
#include <histedit.h>

#include <cstdio>
#include <string_view>

#include "cli/chat/line_editor.h"

namespace moeflux {
namespace {

constexpr int kHistoryLines = 1000;

class LibeditEditor : public LineEditor {
 public:
  LibeditEditor() : editor_(el_init("moeflux", stdin, stdout, stderr)), history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &LibeditEditor::prompt_of);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    // A Ctrl-C comes as a character and empties the line.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor_, EL_BIND, "^C", "ed-start-over", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~LibeditEditor() override {
    el_end(editor_);
    history_end(history_);
  }
  LibeditEditor(const LibeditEditor&) = delete;
  LibeditEditor& operator=(const LibeditEditor&) = delete;

  std::optional<std::string> read(const std::string& prompt) override {
    prompt_ = prompt;
    int count = 0;
    const char* line = el_gets(editor_, &count);
    if (line == nullptr || count <= 0) return std::nullopt;
    std::string_view text(line, static_cast<size_t>(count));
    if (text.ends_with('\n')) text.remove_suffix(1);
    return std::string(text);
  }
  bool takes_interrupts() const override { return true; }
  void remember(const std::string& text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
  }

 private:
  static char* prompt_of(EditLine* editor) {
    LibeditEditor* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt_.data();
  }

  EditLine* editor_;
  History* history_;
  std::string prompt_;
};

}  // namespace

std::unique_ptr<LineEditor> make_libedit_editor() { return std::make_unique<LibeditEditor>(); }

}  // namespace moeflux
