// How much of a GPU's own memory its buffers may take together, and have taken: a platform counts
// there what it allocates, so that a large GPU can stand for a small one.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.h"

namespace moeflux::gpu {

/// Thread-safe. Must outlive its shares.
class MemoryLimit {
 public:
  /// The bytes that one buffer has taken, until it is destroyed.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : limit_(std::exchange(other.limit_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(limit_, other.limit_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share();

   private:
    friend class MemoryLimit;
    Share(MemoryLimit& limit, uint64_t bytes) : limit_(&limit), bytes_(bytes) {}

    MemoryLimit* limit_ = nullptr;
    uint64_t bytes_ = 0;
  };

  /// None: as much as there is.
  explicit MemoryLimit(std::optional<uint64_t> bytes_max) : bytes_max_(bytes_max) {}

  /// Fails with kResourceExhausted, saying what is left.
  Result<Share> take(uint64_t bytes);
  /// Nothing without a limit.
  std::optional<uint64_t> bytes_left() const;

 private:
  std::optional<uint64_t> bytes_max_;
  mutable std::mutex mutex_;
  uint64_t taken_ = 0;
};

}  // namespace moeflux::gpu
