#include "cli/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "io/interrupt.h"

namespace moeflux {

namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

// Names of tensors and keys come from files: they must not break the line or steer the terminal.
std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return result;
}

// The width of a file or a pipe, and of a terminal that does not tell its size.
constexpr size_t kColumnsMany = 1000;

size_t columns_of(int file) {
  winsize size{};
  const bool known = isatty(file) == 1 && ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kColumnsMany;
}

// One that neither goes back in a line nor clears it.
bool is_dumb() {
  const char* const terminal = std::getenv("TERM");
  return terminal != nullptr && terminal == std::string_view("dumb");
}

}  // namespace

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

size_t stdout_columns() {
  const char* const wanted = std::getenv("COLUMNS");
  size_t columns = 0;
  if (wanted != nullptr) std::from_chars(wanted, wanted + std::strlen(wanted), columns);
  return columns > 0 ? columns : columns_of(STDOUT_FILENO);
}
size_t stderr_columns() { return columns_of(STDERR_FILENO); }

bool stderr_has_colour() {
  const char* const refused = std::getenv("NO_COLOR");
  return stderr_is_terminal() && !is_dumb() && (refused == nullptr || *refused == '\0');
}

Status print_out(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return {};
  return make_error(errno == EPIPE ? ErrorCode::kCancelled : ErrorCode::kIo, "standard output: {}",
                    std::strerror(errno));
}

void print_err(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

void print_error(std::string_view message) {
  const std::string line = printable(message);
  print_err(stderr_has_colour() ? formatted("\x1b[31merror:\x1b[0m {}", line)
                                : formatted("error: {}", line));
}

void print_warning(std::string_view message) {
  const std::string line = printable(message);
  print_err(stderr_has_colour() ? formatted("\x1b[33mwarning:\x1b[0m {}", line)
                                : formatted("warning: {}", line));
}

void print_note(std::string_view message) {
  print_err(stderr_has_colour() ? formatted("\x1b[2m{}\x1b[0m", message) : std::string(message));
}

void Log::warning(std::string_view message) const {
  if (shows(LogLevel::kWarning)) print_warning(message);
}
void Log::note(std::string_view message) const {
  if (shows(LogLevel::kInfo)) print_note(message);
}

void end_interrupted() {
  pollfd terminal{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (stderr_is_terminal() && poll(&terminal, 1, 0) == 1 && (terminal.revents & POLLOUT) != 0) {
    // Past stdio, whose lock a thread may hold that writes to a stopped terminal.
    (void)!write(STDERR_FILENO, kClearLine.data(), kClearLine.size());
  }
  _exit(kInterruptedStatus);
}

ProgressBar::ProgressBar(std::string label, uint64_t total, ProgressUnit unit)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      visible_(stderr_is_terminal() && !is_dumb() && total > 0) {}

void ProgressBar::update(uint64_t done, std::string_view more) {
  if (!visible_) return;
  const int percent = static_cast<int>(100 * done / total_);
  if (percent == last_percent_ && more == last_more_) return;
  last_percent_ = percent;
  last_more_ = more;
  show(progress_line(label_, percent, counts(done) + last_more_, stderr_columns() - 1));
}

void ProgressBar::show_rest(std::string_view what) {
  if (!visible_) return;
  last_percent_ = 100;
  show(formatted("{}: {}", label_, what).substr(0, stderr_columns() - 1));
}

void ProgressBar::show(const std::string& line) {
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
}

// A line that is as long as the terminal is wide would begin another one each time.
std::string progress_line(std::string_view label, int percent, std::string_view counts,
                          size_t columns) {
  constexpr size_t kBarMax = 32;
  const std::string numbers = formatted(" {:3} %", percent);
  if (label.size() + numbers.size() > columns) return numbers.substr(1, columns);
  std::string line(label);
  const size_t room = columns - label.size() - numbers.size();
  if (room >= 8) {
    const size_t width = std::min(kBarMax, room - 3);
    std::string bar(static_cast<size_t>(percent) * width / 100, '=');
    bar.resize(width, ' ');
    line += formatted(" [{}]", bar);
  }
  line += numbers;
  if (line.size() + counts.size() <= columns) line += counts;
  return line;
}

std::string ProgressBar::counts(uint64_t done) const {
  switch (unit_) {
    case ProgressUnit::kNone:
      return {};
    case ProgressUnit::kBytes:
      return formatted("  {} of {}", format_bytes(done), format_bytes(total_));
    case ProgressUnit::kTokens:
      return formatted("  {} of {} tokens", done, total_);
  }
  __builtin_unreachable();
}

ProgressBar::~ProgressBar() {
  if (!visible_ || last_percent_ < 0) return;
  std::fprintf(stderr, "%.*s", static_cast<int>(kClearLine.size()), kClearLine.data());
  std::fflush(stderr);
}

}  // namespace moeflux
