#include "cli/chat/line_editor.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "cli/terminal.h"

namespace moeflux {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

class PlainEditor : public LineEditor {
 public:
  explicit PlainEditor(bool shows_prompt) : shows_prompt_(shows_prompt) {}
  std::optional<std::string> read(const std::string& prompt) override {
    if (shows_prompt_ && !print_out(prompt).ok()) return std::nullopt;
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  void remember(const std::string&) override {}

 private:
  const bool shows_prompt_;
};

}  // namespace

std::unique_ptr<LineEditor> make_line_editor(ChatHistory history) {
  const bool is_terminal = isatty(STDIN_FILENO) == 1 && stdout_is_terminal();
  std::unique_ptr<LineEditor> editor =
      is_terminal ? make_libedit_editor(std::move(history)) : nullptr;
  return editor ? std::move(editor) : std::make_unique<PlainEditor>(is_terminal);
}

std::optional<std::string> read_entry(LineEditor& editor) {
  std::optional<std::string> line = editor.read("> ");
  if (!line) return std::nullopt;
  std::string entry;
  const bool quoted = !editor.was_pasted() && line->starts_with(kQuotes);
  if (quoted) line->erase(0, kQuotes.size());
  while (line) {
    const bool ends_quotes = quoted && line->ends_with(kQuotes);
    if (ends_quotes) line->erase(line->size() - kQuotes.size());
    const bool goes_on = !quoted && !editor.was_pasted() && line->ends_with('\\');
    if (goes_on) line->pop_back();
    entry += *line;
    if (ends_quotes || (!quoted && !goes_on)) break;
    entry += '\n';
    line = editor.read(". ");
  }
  if (!entry.empty()) editor.remember(entry);
  return entry;
}

}  // namespace moeflux
