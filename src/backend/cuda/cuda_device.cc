#include "backend/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>

#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/kernel_table.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/launch/memory_limit.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

uint32_t at_most(uint32_t value, uint32_t limit) {
  return limit == 0 ? value : std::min(value, limit);
}

// How little of the GPU counts; empty where all of it does.
std::string limits_of(const CudaOptions& options, uint32_t cores, uint32_t shared_bytes) {
  std::string text;
  if (options.shared_kib_max != 0 || options.multiprocessors_max != 0) {
    text = formatted(" as if {} with {} KiB", cores, shared_bytes / 1024);
  }
  if (options.memory_bytes_max) {
    text += formatted(", {} of memory", format_bytes(*options.memory_bytes_max));
  }
  return text;
}

class CudaPlatform : public gpu::Platform {
 public:
  CudaPlatform(const CudaOptions& options, const cudaDeviceProp& properties)
      : device_(options.device),
        use_graphs_(options.use_graphs),
        shared_bytes_max_(at_most(std::min(static_cast<uint32_t>(properties.sharedMemPerBlockOptin),
                                           gpu::kMmaSharedBytesMax),
                                  options.shared_kib_max * 1024)),
        cores_(at_most(static_cast<uint32_t>(properties.multiProcessorCount),
                       options.multiprocessors_max)),
        has_team_units_(properties.major == 9),
        name_(formatted("cuda:{}", options.device)),
        model_(formatted("({}, compute capability {}.{}, {} multiprocessors)",
                         static_cast<const char*>(properties.name), properties.major,
                         properties.minor, properties.multiProcessorCount)),
        description_(
            formatted("{} {}{}", name_, model_, limits_of(options, cores_, shared_bytes_max_))),
        bits_key_(formatted("cuda {}", model_)),
        limit_(options.memory_bytes_max) {}

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  // Equal GPUs share a key: the index of the device does not matter.
  std::string_view bits_key() const override { return bits_key_; }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    gpu::MemoryLimit::Share share;
    if (kind == MemoryKind::kDevice) {
      MF_ASSIGN_OR_RETURN(share, limit_.take(bytes));
    }
    return gpu::CudaBuffer::allocate(device_, bytes, kind, std::move(share));
  }

  uint64_t device_address(const Buffer& buffer) const override {
    return reinterpret_cast<uintptr_t>(gpu::cuda_address(buffer));
  }

  Result<std::unique_ptr<gpu::Executor>> create_executor() override {
    return gpu::make_cuda_executor(device_, use_graphs_);
  }

  Status upload(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    MF_CHECK(offset_bytes + from.size() <= to.size_bytes());
    MF_RETURN_IF_ERROR(gpu::use_cuda_device(device_));
    MF_RETURN_IF_ERROR(gpu::cuda_status(cudaMemcpy(gpu::cuda_address(to) + offset_bytes,
                                                   from.data(), from.size(), cudaMemcpyDefault),
                                        "cudaMemcpy"));
    // A copy from pageable memory may return before its last bytes have arrived.
    return gpu::cuda_status(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  Status reach(const Platform& other) override {
    const int theirs = static_cast<const CudaPlatform&>(other).device_;
    if (theirs == device_) return {};
    int reaches = 0;
    MF_RETURN_IF_ERROR(gpu::use_cuda_device(device_));
    MF_RETURN_IF_ERROR(gpu::cuda_status(cudaDeviceCanAccessPeer(&reaches, device_, theirs),
                                        "cudaDeviceCanAccessPeer"));
    if (reaches == 0) return Platform::reach(other);
    const cudaError_t code = cudaDeviceEnablePeerAccess(theirs, 0);
    if (code != cudaErrorPeerAccessAlreadyEnabled) {
      return gpu::cuda_status(code, "cudaDeviceEnablePeerAccess");
    }
    (void)cudaGetLastError();  // the next launch is not to find it
    return {};
  }

  // Two bits a clock on each line of the bus. A GPU whose driver does not tell is like the others.
  double memory_bytes_per_second() const override {
    int khz = 0;
    int bits = 0;
    if (cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device_) != cudaSuccess ||
        cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device_) != cudaSuccess) {
      return 0.0;
    }
    return 2.0 * 1e3 * khz * bits / 8.0;
  }

  bool has_matrix_units() const override {
    return true;
  }  // of bf16, from 8.0 on, as all we compile for
  bool multiplies_in_teams() const override { return has_team_units_; }
  bool copies_beside() const override { return true; }
  uint32_t shared_bytes_max() const override { return shared_bytes_max_; }
  uint32_t cores() const override { return cores_; }

  std::optional<uint64_t> free_bytes() const override {
    size_t available = 0;
    size_t total = 0;
    if (!gpu::use_cuda_device(device_).ok()) return 0;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
    return std::min<uint64_t>(available, limit_.bytes_left().value_or(available));
  }

 private:
  int device_;
  bool use_graphs_;
  uint32_t shared_bytes_max_;
  uint32_t cores_;
  bool has_team_units_;  // wgmma, which only 9.0 has
  std::string name_;
  std::string model_;
  std::string description_;
  std::string bits_key_;
  gpu::MemoryLimit limit_;
};

// The runtime has the same words for an old driver and for none. Drivers serve each CUDA of their
// own major version and all before.
Status check_driver(int device) {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return make_error(ErrorCode::kNotFound, "cuda:{}: no NVIDIA driver was found (libcuda.so.1)",
                      device);
  }
  constexpr int kNeeded = CUDART_VERSION / 1000;
  if (version / 1000 >= kNeeded) return {};
  return make_error(ErrorCode::kNotFound,
                    "cuda:{}: the NVIDIA driver has CUDA {}.{}, this build needs {}.0 or newer",
                    device, version / 1000, version % 1000 / 10, kNeeded);
}

// A build has machine code for a list of GPUs; a call says whether this one is among them.
Status check_kernels(int device) {
  cudaFuncAttributes attributes{};
  const Status found = gpu::cuda_status(
      cudaFuncGetAttributes(&attributes, gpu::cuda_kernel(gpu::KernelId::copy_rows)),
      "cudaFuncGetAttributes");
  if (found.ok()) return {};
  return found.error().with_context(formatted(
      "cuda:{}: this build has no kernels for it (see MOEFLUX_CUDA_ARCHITECTURES)", device));
}

}  // namespace

Result<std::unique_ptr<gpu::Platform>> make_cuda_platform(const CudaOptions& options) {
  MF_RETURN_IF_ERROR(check_driver(options.device));
  int count = 0;
  const Status counted = gpu::cuda_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (!counted.ok()) return counted.error().with_context(formatted("cuda:{}", options.device));
  if (options.device < 0 || options.device >= count) {
    return make_error(ErrorCode::kNotFound, "cuda:{}: this machine has {} CUDA devices",
                      options.device, count);
  }
  MF_RETURN_IF_ERROR(gpu::use_cuda_device(options.device));
  cudaDeviceProp properties{};
  MF_RETURN_IF_ERROR(gpu::cuda_status(cudaGetDeviceProperties(&properties, options.device),
                                      "cudaGetDeviceProperties"));
  MF_RETURN_IF_ERROR(check_kernels(options.device));
  return std::unique_ptr<gpu::Platform>(std::make_unique<CudaPlatform>(options, properties));
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<gpu::Platform> platform, make_cuda_platform(options));
  return make_gpu_device(std::move(platform));
}

}  // namespace moeflux
