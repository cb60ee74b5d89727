// Output for people and programs: colour and progress only where a person is looking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

bool stdout_is_terminal();
bool stderr_is_terminal();
/// Columns of the terminal, or many where there is none; for standard output the variable COLUMNS
/// comes first, as people set it.
size_t stdout_columns();
size_t stderr_columns();
/// Whether to colour what goes to standard error: on a terminal that can (TERM) and unless NO_COLOR
/// is set.
bool stderr_has_colour();

/// Writes to standard output at once. Fails with kCancelled when its reader has left (`| head`),
/// which ends a program without a complaint, and with kIo otherwise (a full disk).
Status print_out(std::string_view text);
void print_err(std::string_view line);
/// "error: ..." on standard error, in red on a terminal; one line, whatever names from files hold.
void print_error(std::string_view message);
/// "warning: ..." in the same manner.
void print_warning(std::string_view message);
/// Faint text for statistics and notes, on a terminal; plain otherwise.
void print_note(std::string_view message);

/// The least grave of what is written to standard error.
enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };

/// A command's messages besides its output, as --log-level wants them. Any thread.
class Log {
 public:
  constexpr Log() = default;
  void set_level(LogLevel level) { level_ = level; }
  bool shows(LogLevel level) const { return level <= level_; }
  void warning(std::string_view message) const;
  void note(std::string_view message) const;

 private:
  LogLevel level_ = LogLevel::kInfo;
};
inline constexpr Log kDefaultLog;

/// Ends the program at once with the status of an interrupt, the bar of a terminal cleared if that
/// takes no waiting. For any thread.
[[noreturn]] void end_interrupted();

/// The things that a bar counts and shows behind its percent.
enum class ProgressUnit : uint8_t { kNone, kBytes, kTokens };

/// "loading [====    ]  50 %  1 of 2 GiB", without its counts and its bar where they do not fit.
std::string progress_line(std::string_view label, int percent, std::string_view counts,
                          size_t columns);

/// A bar on standard error, redrawn in place; nothing when standard error is no terminal.
class ProgressBar {
 public:
  ProgressBar(std::string label, uint64_t total, ProgressUnit unit = ProgressUnit::kNone);
  ~ProgressBar();  // clears the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// `more` follows the counts where it fits.
  void update(uint64_t done, std::string_view more = {});
  /// In place of the bar, for work that nobody counts.
  void show_rest(std::string_view what);

 private:
  void show(const std::string& line);
  std::string counts(uint64_t done) const;

  std::string label_;
  std::string last_more_;
  uint64_t total_;
  ProgressUnit unit_;
  int last_percent_ = -1;
  bool visible_;
};

}  // namespace moeflux
