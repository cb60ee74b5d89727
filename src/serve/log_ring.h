// The last lines of a server's log, for those who may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux::serve {

struct LogLine {
  uint64_t number = 0;  // from 1
  int64_t time_ms = 0;  // since 1970
  std::string text;
};

/// Thread-safe. Lines beyond a number and bytes of long ones are dropped.
class LogRing {
 public:
  static constexpr size_t kLinesMax = 200;
  static constexpr size_t kLineBytesMax = 1024;

  void add(std::string_view line);
  /// The lines that are there with a higher number, in order.
  std::vector<LogLine> after(uint64_t number) const;

 private:
  mutable std::mutex mutex_;  // guards what follows
  std::deque<LogLine> lines_;
  uint64_t count_ = 0;
};

}  // namespace moeflux::serve
