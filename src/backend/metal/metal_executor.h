// Metal command buffers as the queue of GpuEncoder: one for all that lies between two submissions,
// a token where all experts are there, a layer where routes are read.
#pragma once

#include <memory>

#include "backend/gpu/launch/executor.h"
#include "backend/metal/metal_gpu.h"
#include "base/result.h"

namespace moeflux::gpu {

/// Bytes that writes may keep in memory of both processors until the GPU has copied them.
constexpr size_t kMetalStagingBlockBytes = size_t{1} << 20;
constexpr size_t kMetalStagingBlocks = 8;

/// `gpu` outlives it.
Result<std::unique_ptr<Executor>> make_metal_executor(MetalGpu& gpu);

}  // namespace moeflux::gpu
