// From error codes of the CUDA runtime to Status, with the call's name.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/result.h"

namespace moeflux::gpu {

/// Ok, or an error such as "cudaMalloc of 12.0 GiB: out of memory (cudaErrorMemoryAllocation)".
/// kResourceExhausted where memory ran out, kNotFound where there is no driver or no GPU,
/// kUnsupported where the build has no code for the GPU, kFailedPrecondition otherwise: after a
/// fault in a kernel every later call fails alike.
Status cuda_status(cudaError_t code, std::string_view call);

/// Makes `device` the calling thread's current one.
Status use_cuda_device(int device);

}  // namespace moeflux::gpu
