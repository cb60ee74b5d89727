// NVIDIA GPUs as devices: the platform of GpuEncoder over the CUDA runtime. Built with
// MOEFLUX_CUDA=ON; otherwise opening one says so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/device.h"
#include "backend/gpu/launch/executor.h"
#include "base/result.h"

namespace moeflux {

struct CudaOptions {
  int device = 0;  // as the CUDA runtime numbers them
  /// Launch runs of kernels that come again as CUDA graphs. Does not change the results.
  bool use_graphs = true;
  /// Plans are made as for a GPU that has less: of shared memory for a group, and multiprocessors.
  /// 0: what there is.
  uint32_t shared_kib_max = 0;
  uint32_t multiprocessors_max = 0;
  /// The most of the GPU's memory that is taken; none: what there is.
  std::optional<uint64_t> memory_bytes_max = {};
};

/// Fails with kUnsupported when built without CUDA or when the build has no code for this GPU,
/// kNotFound when there is no such GPU or no driver.
Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options);
/// The platform of which make_cuda_device() makes a device.
Result<std::unique_ptr<gpu::Platform>> make_cuda_platform(const CudaOptions& options);

}  // namespace moeflux
