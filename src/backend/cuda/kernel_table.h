// From a kernel's number to what the CUDA runtime launches.
#pragma once

#include "backend/gpu/kernel_list.h"

namespace moeflux::gpu {

/// The host-side handle of a kernel, for cudaLaunchKernel.
const void* cuda_kernel(KernelId id);

}  // namespace moeflux::gpu
