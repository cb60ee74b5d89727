// Lines for whoever looks at a server, which does not wait for them to be read.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

namespace moeflux {

/// Thread-safe.
class QuickNotes {
 public:
  /// Writes to a file descriptor that others may write to, which must outlive this.
  explicit QuickNotes(int fd) : fd_(fd) {}

  /// Writes the line as print_note() does, its first 4096 bytes at most, if there is room for it at
  /// once. Lines that are left out are counted, and the next one that is written begins with that.
  void add(std::string_view line);

 private:
  const int fd_;
  std::mutex mutex_;  // guards what follows and is held while a line is written
  uint64_t left_out_ = 0;
};

}  // namespace moeflux
