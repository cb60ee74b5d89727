// Small tables in device memory that kernels look things up in (addresses of pages and of experts),
// and the workspace that kernels of one op share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/gpu/launch/executor.h"
#include "backend/gpu/launch/plan.h"
#include "base/result.h"

namespace moeflux::gpu {

/// Places tables by content: what was placed before and is still there is not written again, which
/// is the common case, as pages and resident experts stay where they are from step to step.
/// A full region starts over; the queue is in order, so earlier plans have read what they need.
class DeviceTables {
 public:
  DeviceTables(Platform& platform, Executor& executor) : platform_(platform), executor_(executor) {}

  /// The table as a range to bind for reading. Allocates only when a table is larger than any
  /// before. Fails with kResourceExhausted.
  Result<Binding> place(std::span<const std::byte> bytes);
  /// So that this many bytes, each table rounded up to kAlignment, take the place of nothing that
  /// is placed from here on.
  Status make_room(size_t bytes);
  static constexpr size_t kAlignment = 16;

 private:
  struct Entry {
    size_t begin = 0;
    size_t bytes = 0;
  };

  Platform& platform_;
  Executor& executor_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // the last is in use, work may still read others
  std::vector<std::byte> mirror_;
  std::unordered_map<uint64_t, Entry> entries_;  // by the hash of their bytes
  size_t used_ = 0;
  bool is_used_before_ = false;  // what is written next lies where other tables lay
};

/// Memory whose contents live for one op. Grows; never shrinks.
class Workspace {
 public:
  explicit Workspace(Platform& platform) : platform_(platform) {}

  /// A range of `bytes` for reading and writing. Fails with kResourceExhausted.
  Result<Binding> take(size_t bytes);

 private:
  Platform& platform_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // the last is in use, work may still read others
};

}  // namespace moeflux::gpu
