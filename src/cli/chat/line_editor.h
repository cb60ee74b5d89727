// Lines of a person at a terminal, with editing and history, or of a file.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/chat/chat_history.h"

namespace moeflux {

class LineEditor {
 public:
  virtual ~LineEditor() = default;
  /// The next line without its end; nothing at the end of the input. Ctrl-C empties the line. A
  /// text of several lines that was pasted is one line, with line ends in it.
  virtual std::optional<std::string> read(const std::string& prompt) = 0;
  /// Whether the last line begins with a pasted text of several lines: such a one is whole,
  /// whatever its first and last letters are.
  virtual bool was_pasted() const { return false; }
  /// Whether Ctrl-C at its prompt empties the line. One that comes between an answer and the prompt
  /// must then not end the program either.
  virtual bool takes_interrupts() const { return false; }
  /// Makes a text that was entered known to the history.
  virtual void remember(const std::string& text) = 0;
  /// Leaves the terminal as it was found, for a program that ends at once. Any thread.
  virtual void give_terminal_back() {}
};

/// Editing where standard input and output are a terminal and the build has libedit; otherwise
/// lines as they come, with the prompt shown on a terminal. To be made before threads are: it keeps
/// to itself the signal of a resized window.
std::unique_ptr<LineEditor> make_line_editor(ChatHistory history);
/// Null in a build without libedit.
std::unique_ptr<LineEditor> make_libedit_editor(ChatHistory history);

/// A whole entry: lines that end in a backslash go on, and lines between two of """ belong
/// together.
std::optional<std::string> read_entry(LineEditor& editor);

}  // namespace moeflux
