// Apple GPUs as a device: the platform of GpuEncoder over Metal. Built on macOS; elsewhere opening
// it says so.
#pragma once

#include <memory>

#include "backend/device.h"
#include "backend/metal/metal_gpu.h"
#include "base/result.h"

namespace moeflux {

/// The machine's own GPU. Fails with kUnsupported where there is no Metal or the GPU lacks what
/// kernels need, kNotFound when there is none.
Result<std::unique_ptr<Device>> make_metal_device();

/// The device over any GPU that takes Metal's commands: what tests put the emulator behind.
std::unique_ptr<Device> make_metal_device(std::unique_ptr<gpu::MetalGpu> gpu);

}  // namespace moeflux
