// Memory of a CUDA device and pinned memory of the host, and the staging through which bytes of the
// host travel without stopping the queue.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "backend/device.h"
#include "backend/gpu/launch/memory_limit.h"
#include "base/result.h"

namespace moeflux::gpu {

/// kDevice: the GPU's own memory. kHostVisible: pinned memory of the host that kernels read over
/// the bus, for what readers write into. Freeing waits for the device's work: allocate at load.
class CudaBuffer : public Buffer {
 public:
  /// `share` is what the buffer takes of a limit.
  static Result<std::unique_ptr<Buffer>> allocate(int device, size_t bytes, MemoryKind kind,
                                                  MemoryLimit::Share share = {});
  ~CudaBuffer() override;

  size_t size_bytes() const override { return bytes_; }
  std::byte* host_data() const override { return host_; }
  /// Where kernels find the first byte.
  std::byte* device_data() const { return device_data_; }

 private:
  CudaBuffer(int device, size_t bytes, MemoryLimit::Share share)
      : device_(device), bytes_(bytes), share_(std::move(share)) {}

  Status pin(size_t size);

  int device_;
  size_t bytes_;
  MemoryLimit::Share share_;
  std::unique_ptr<Buffer> pages_;  // of the host's memory that is pinned, where it is ours
  std::byte* host_ = nullptr;
  std::byte* device_data_ = nullptr;
};

/// The device address of a buffer that CudaBuffer::allocate() made.
std::byte* cuda_address(const Buffer& buffer);

/// Pinned memory in a ring of blocks. A block is taken again once the copies out of it are done.
class CudaStaging {
 public:
  /// The most that one copy can carry.
  static constexpr size_t kBlockBytes = size_t{1} << 20;

  static Result<std::unique_ptr<CudaStaging>> create();
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  /// Queues a copy of `from` to a device address; returns once `from` may change.
  Status copy(cudaStream_t stream, std::byte* to, std::span<const std::byte> from);

 private:
  static constexpr size_t kBlocks = 4;
  CudaStaging() = default;
  Status next_block(cudaStream_t stream);

  std::byte* memory_ = nullptr;
  std::array<cudaEvent_t, kBlocks> done_{};  // of the copies out of a block
  size_t block_ = 0;
  size_t used_ = 0;  // of the block
};

}  // namespace moeflux::gpu
