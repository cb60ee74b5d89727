// Lines of a person at a terminal, with editing and history, or of a file.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"

namespace moeflux {

class LineEditor {
 public:
  virtual ~LineEditor() = default;
  /// The next line without its end; nothing at the end of the input. Ctrl-C empties the line.
  virtual std::optional<std::string> read(const std::string& prompt) = 0;
  /// Whether Ctrl-C at its prompt empties the line. One that comes between an answer and the prompt
  /// must then not end the program either.
  virtual bool takes_interrupts() const { return false; }
  /// Makes a text that was entered known to the history.
  virtual void remember(const std::string& text) = 0;
};

/// Editing where standard input and output are a terminal and the build has libedit; otherwise
/// lines as they come, with the prompt shown on a terminal.
std::unique_ptr<LineEditor> make_line_editor();
/// Null in a build without libedit.
std::unique_ptr<LineEditor> make_libedit_editor();

/// A whole entry: lines that end in a backslash go on, and lines between two of """ belong
/// together.
std::optional<std::string> read_entry(LineEditor& editor);

}  // namespace moeflux
