#include "backend/cuda/cuda_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/cuda_status.h"
#include "backend/host_buffer.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr size_t kCopyAlignment = 16;
constexpr size_t kPinnedPagesMin = 64 * kMiB;

}  // namespace

Result<std::unique_ptr<Buffer>> CudaBuffer::allocate(int device, size_t bytes, MemoryKind kind,
                                                     MemoryLimit::Share share) {
  MF_RETURN_IF_ERROR(use_cuda_device(device));
  const size_t size = std::max<size_t>(bytes, 1);
  std::unique_ptr<CudaBuffer> buffer(new CudaBuffer(device, size, std::move(share)));
  void* memory = nullptr;
  if (kind == MemoryKind::kDevice) {
    const cudaError_t code = cudaMalloc(&memory, size);
    // The caller may go on without this memory: the error must not be found behind the next launch.
    if (code == cudaErrorMemoryAllocation) (void)cudaGetLastError();
    MF_RETURN_IF_ERROR(cuda_status(code, formatted("cudaMalloc of {}", format_bytes(size))));
    buffer->device_data_ = static_cast<std::byte*>(memory);
    MF_RETURN_IF_ERROR(cuda_status(cudaMemset(memory, 0, size), "cudaMemset"));
    // Work of other streams must not overtake the zeros.
    MF_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"));
    return std::unique_ptr<Buffer>(std::move(buffer));
  }
  if (size >= kPinnedPagesMin) {
    MF_RETURN_IF_ERROR(buffer->pin(size));
  } else {
    MF_RETURN_IF_ERROR(
        cuda_status(cudaHostAlloc(&memory, size, cudaHostAllocMapped | cudaHostAllocPortable),
                    formatted("cudaHostAlloc of {}", format_bytes(size))));
    buffer->host_ = static_cast<std::byte*>(memory);
    std::memset(memory, 0, size);
  }
  void* address = nullptr;
  MF_RETURN_IF_ERROR(cuda_status(cudaHostGetDevicePointer(&address, buffer->host_, 0),
                                 "cudaHostGetDevicePointer"));
  buffer->device_data_ = static_cast<std::byte*>(address);
  return std::unique_ptr<Buffer>(std::move(buffer));
}

// Pages of two megabytes that are there already take a twelfth of the time of cudaHostAlloc. Where
// the system does not bring them at once the driver does, page by page.
Status CudaBuffer::pin(size_t size) {
  MF_ASSIGN_OR_RETURN(pages_, allocate_host_buffer(size));
  std::byte* const begin = pages_->host_data();
#ifdef MADV_POPULATE_WRITE
  (void)madvise(begin, size, MADV_POPULATE_WRITE);
#endif
  const Status pinned =
      cuda_status(cudaHostRegister(begin, size, cudaHostRegisterMapped | cudaHostRegisterPortable),
                  formatted("cudaHostRegister of {}", format_bytes(size)));
  // Every failure to pin is kResourceExhausted: the caller may try less.
  if (!pinned.ok()) return Error(ErrorCode::kResourceExhausted, pinned.error().message());
  host_ = begin;
  return {};
}

CudaBuffer::~CudaBuffer() {
  if (!use_cuda_device(device_).ok()) return;
  if (pages_ != nullptr) {
    // Other ways of freeing wait for the device's work; of this one nothing is said.
    if (host_ != nullptr) (void)cudaDeviceSynchronize();
    if (host_ != nullptr) (void)cudaHostUnregister(host_);
  } else if (host_ != nullptr) {
    (void)cudaFreeHost(host_);
  } else {
    (void)cudaFree(device_data_);
  }
}

std::byte* cuda_address(const Buffer& buffer) {
  return static_cast<const CudaBuffer&>(buffer).device_data();
}

Result<std::unique_ptr<CudaStaging>> CudaStaging::create() {
  std::unique_ptr<CudaStaging> staging(new CudaStaging);
  void* memory = nullptr;
  MF_RETURN_IF_ERROR(
      cuda_status(cudaHostAlloc(&memory, kBlocks * kBlockBytes, cudaHostAllocPortable),
                  "cudaHostAlloc for staging"));
  staging->memory_ = static_cast<std::byte*>(memory);
  for (cudaEvent_t& event : staging->done_) {
    MF_RETURN_IF_ERROR(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                   "cudaEventCreateWithFlags"));
  }
  return staging;
}

CudaStaging::~CudaStaging() {
  for (cudaEvent_t event : done_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  if (memory_ != nullptr) (void)cudaFreeHost(memory_);
}

// An event that was never recorded counts as passed.
Status CudaStaging::next_block(cudaStream_t stream) {
  MF_RETURN_IF_ERROR(cuda_status(cudaEventRecord(done_[block_], stream), "cudaEventRecord"));
  block_ = (block_ + 1) % kBlocks;
  used_ = 0;
  return cuda_status(cudaEventSynchronize(done_[block_]), "cudaEventSynchronize");
}

Status CudaStaging::copy(cudaStream_t stream, std::byte* to, std::span<const std::byte> from) {
  while (!from.empty()) {
    const size_t piece = std::min(from.size(), kBlockBytes);
    if (used_ + piece > kBlockBytes) MF_RETURN_IF_ERROR(next_block(stream));
    std::byte* const at = memory_ + block_ * kBlockBytes + used_;
    std::memcpy(at, from.data(), piece);
    MF_RETURN_IF_ERROR(
        cuda_status(cudaMemcpyAsync(to, at, piece, cudaMemcpyDefault, stream), "cudaMemcpyAsync"));
    used_ = std::min<size_t>(round_up(used_ + piece, kCopyAlignment), kBlockBytes);
    to += piece;
    from = from.subspan(piece);
  }
  return {};
}

}  // namespace moeflux::gpu
