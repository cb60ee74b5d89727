#include "cli/terminal.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/format.h"

namespace moeflux {

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

bool print_out(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void print_err(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

void print_error(std::string_view message) {
  print_err(stderr_is_terminal() ? format("\x1b[31merror:\x1b[0m {}", message)
                                 : format("error: {}", message));
}

void print_note(std::string_view message) {
  print_err(stderr_is_terminal() ? format("\x1b[2m{}\x1b[0m", message) : std::string(message));
}

ProgressBar::ProgressBar(std::string label, uint64_t total)
    : label_(std::move(label)), total_(total), visible_(stderr_is_terminal() && total > 0) {}

void ProgressBar::update(uint64_t done) {
  if (!visible_) return;
  const int percent = static_cast<int>(100 * done / total_);
  if (percent == last_percent_) return;
  last_percent_ = percent;
  constexpr int kWidth = 32;
  std::string bar(static_cast<size_t>(percent * kWidth / 100), '=');
  bar.resize(kWidth, ' ');
  std::fprintf(stderr, "\r%s [%s] %3d %%", label_.c_str(), bar.c_str(), percent);
  std::fflush(stderr);
}

ProgressBar::~ProgressBar() {
  if (visible_ && last_percent_ >= 0) std::fprintf(stderr, "\r\x1b[K");
}

}  // namespace moeflux
