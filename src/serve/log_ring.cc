#include "serve/log_ring.h"

#include <chrono>

namespace moeflux::serve {

void LogRing::add(std::string_view line) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::lock_guard lock(mutex_);
  lines_.push_back(
      {.number = ++count_, .time_ms = ms, .text = std::string(line.substr(0, kLineBytesMax))});
  if (lines_.size() > kLinesMax) lines_.pop_front();
}

std::vector<LogLine> LogRing::after(uint64_t number) const {
  std::vector<LogLine> found;
  const std::lock_guard lock(mutex_);
  for (const LogLine& line : lines_) {
    if (line.number > number) found.push_back(line);
  }
  return found;
}

}  // namespace moeflux::serve
