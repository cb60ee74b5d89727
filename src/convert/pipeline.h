// Makes a long run of bytes window by window: while one window is written, the other threads fill
// the next. Memory is two windows, whatever the length.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"

namespace moeflux {

/// Takes bytes in order.
using ByteSink = std::function<Status(std::span<const std::byte> bytes)>;

struct PipelineRun {
  uint64_t total_bytes = 0;
  uint64_t task_bytes = 0;  // every task but the last makes this many
  /// Fills the bytes from `offset` on; called from any thread, ranges in any order.
  std::function<Status(uint64_t offset, std::span<std::byte> bytes)> make;
  ByteSink write;
};

/// Thread-compatible.
class Pipeline {
 public:
  Pipeline(int threads, std::stop_token stop, std::function<void(uint64_t)> progress)
      : pool_(threads > 0 ? threads : usable_cores()),
        stop_(std::move(stop)),
        progress_(std::move(progress)) {}

  /// Fails with the first error in order of offsets, or kCancelled.
  Status run(const PipelineRun& run);
  /// Counts bytes that needed no work.
  void skip(uint64_t bytes);

 private:
  Status advance(const PipelineRun& run, std::span<const std::byte> filled, uint64_t offset,
                 std::span<std::byte> next);

  ThreadPool pool_;
  std::stop_token stop_;
  std::function<void(uint64_t)> progress_;
  uint64_t done_ = 0;
  std::array<std::vector<std::byte>, 2> windows_;
  std::vector<Status> outcomes_;
};

}  // namespace moeflux
