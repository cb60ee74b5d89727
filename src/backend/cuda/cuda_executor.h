// A CUDA stream as the queue of GpuEncoder. Plans are launched soon after they are recorded, the
// last of them at submit(); the host waits in read() and wait() alone, and in write() when the GPU
// is megabytes of writes behind.
#pragma once

#include <memory>

#include "backend/gpu/launch/executor.h"
#include "base/result.h"

namespace moeflux::gpu {

Result<std::unique_ptr<Executor>> make_cuda_executor(int device, bool use_graphs);

}  // namespace moeflux::gpu
