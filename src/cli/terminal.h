// Output for people and programs: colour and progress only where a person is looking.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

bool stdout_is_terminal();
bool stderr_is_terminal();

/// Writes to standard output at once. Fails with kCancelled when its reader has left (`| head`),
/// which ends a program without a complaint, and with kIo otherwise (a full disk).
Status print_out(std::string_view text);
/// Writes a line to standard error.
void print_err(std::string_view line);
/// "error: ..." on standard error, in red on a terminal; one line, whatever names from files hold.
void print_error(std::string_view message);
/// "warning: ..." in the same manner.
void print_warning(std::string_view message);
/// Faint text for statistics and notes, on a terminal; plain otherwise.
void print_note(std::string_view message);

/// Ends the program at once with the status of an interrupt, the bar of a terminal cleared if that
/// takes no waiting. For any thread.
[[noreturn]] void end_interrupted();

/// The things that a bar counts and shows behind its percent.
enum class ProgressUnit : uint8_t { kNone, kBytes, kTokens };

/// A bar on standard error, redrawn in place; nothing when standard error is no terminal.
class ProgressBar {
 public:
  ProgressBar(std::string label, uint64_t total, ProgressUnit unit = ProgressUnit::kNone);
  ~ProgressBar();  // clears the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(uint64_t done);

 private:
  std::string counts(uint64_t done) const;

  std::string label_;
  uint64_t total_;
  ProgressUnit unit_;
  int last_percent_ = -1;
  bool visible_;
};

}  // namespace moeflux
