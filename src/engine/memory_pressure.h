// Watches how much memory is left while a model runs and says when the expert cache has to give
// some back, before the system swaps or kills. Thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "io/host_memory.h"

namespace moeflux {

class MemoryPressure {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    /// Below `low_bytes` so much is given back that `high_bytes` are left. Between them nothing
    /// happens: a system that hovers about one mark would otherwise cost experts at every look.
    uint64_t low_bytes = 0;
    uint64_t high_bytes = 0;
    /// A look reads some two dozen files of the system, less than a millisecond; programs take
    /// gigabytes within seconds.
    std::chrono::milliseconds interval{500};
  };

  /// Never asks for anything.
  MemoryPressure() = default;
  MemoryPressure(std::function<HostMemory()> read, const Options& options)
      : read_(std::move(read)), options_(options) {}

  /// Bytes to give back now, nearly always 0. Looks at the clock, and at memory only when the last
  /// look is an interval ago. Systems that tell nothing are never short of memory.
  uint64_t bytes_to_release(Clock::time_point now = Clock::now());

 private:
  std::function<HostMemory()> read_;
  Options options_;
  Clock::time_point next_look_{};  // the first call looks
};

}  // namespace moeflux
