// Reads of a few bytes without a copy: a kernel stores them in memory that the host looks at. Knows
// how they lie there; knows nothing of queues or waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "backend/gpu/launch/plan.h"

namespace moeflux::gpu {

/// One read at a time. Thread-compatible.
class ReadOut {
 public:
  /// Best logits, a token's routes. One group stores them in a few microseconds.
  static constexpr size_t kBytesMax = 4096;
  /// The memory between kernel and host.
  static constexpr size_t kWordsBytes = kBytesMax / sizeof(uint32_t) * sizeof(uint64_t);

  /// `words` has kWordsBytes, which kernels write while the host reads.
  explicit ReadOut(std::unique_ptr<Buffer> words) : words_(std::move(words)) {}

  /// The launch that stores `bytes`, from 1 to kBytesMax, of `from`. Call when the one before has
  /// arrived, and begin the launch after this.
  Plan plan(const Buffer& from, uint64_t offset_bytes, size_t bytes);
  /// True when all bytes of the last plan are there.
  bool has_arrived();
  /// They, when they are.
  void take(std::span<std::byte> to);

 private:
  uint64_t load(size_t word) const;

  std::unique_ptr<Buffer> words_;
  size_t wanted_ = 0;   // words of the last plan
  size_t arrived_ = 0;  // of them, without a gap
};

}  // namespace moeflux::gpu
