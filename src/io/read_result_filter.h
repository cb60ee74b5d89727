// ReadResultFilter: a place where tests falsify what the system says about a read.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

namespace moeflux {

/// Called for every read of a kernel file by the uring, direct and pread readers. Thread-safe.
class ReadResultFilter {
 public:
  virtual ~ReadResultFilter() = default;
  /// `result` is the bytes that arrived in `into`, or -errno. Returns what the reader shall believe
  /// instead; may spoil bytes that it denies.
  virtual int64_t filter(std::span<const iovec> into, int64_t result) = 0;
};

}  // namespace moeflux
