// A few bytes to and from a device without its copy engines. Those take the place of kernels and
// hand it back, and the host learns late that they have finished: too long for what a decoded token
// begins and ends with. So a launch carries what is written, and a kernel stores what is read where
// the host looks for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/small_copy_kernels.h"
#include "backend/device.h"
#include "base/result.h"

namespace moeflux::gpu {

/// Queues a write of at most kSmallWriteBytes to a device address; `from` may change afterwards.
Status small_write(cudaStream_t stream, std::byte* to, std::span<const std::byte> from);

/// Reads of at most kSmallReadBytes, one at a time. Thread-compatible.
class SmallReader {
 public:
  static Result<std::unique_ptr<SmallReader>> create(int device);

  /// Waits for what was queued before, then fills `to` from a device address.
  Status read(cudaStream_t stream, std::span<std::byte> to, const std::byte* from);

 private:
  explicit SmallReader(std::unique_ptr<Buffer> words) : words_(std::move(words)) {}
  uint64_t* words() { return reinterpret_cast<uint64_t*>(words_->host_data()); }
  Status await(cudaStream_t stream, std::span<uint64_t> words);

  std::unique_ptr<Buffer> words_;  // of the host; kernels store there
};

}  // namespace moeflux::gpu
