// FaultyFile: a File whose reads of chosen byte ranges fail with kIo, like a disk with bad sectors.
// Knobs: the ranges, and how many reads each of them fails before it heals. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "io/file.h"

namespace moeflux {

/// Reads that touch [begin, end) fail, the first `failures_max` of them.
struct FaultyRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t failures_max = UINT64_MAX;
};

class FaultyFile final : public File {
 public:
  FaultyFile(std::unique_ptr<File> inner, std::vector<FaultyRange> ranges)
      : inner_(std::move(inner)), ranges_(std::move(ranges)) {}

  const std::string& path() const override { return inner_->path(); }
  uint64_t size_bytes() const override { return inner_->size_bytes(); }
  /// A failing read fills the bytes before the bad range, as a device that broke off would.
  Status read_at(uint64_t offset, std::span<std::byte> into) const override;

 private:
  std::unique_ptr<File> inner_;
  mutable std::mutex mutex_;
  mutable std::vector<FaultyRange> ranges_;  // guarded by mutex_; failures_max counts down
};

}  // namespace moeflux
