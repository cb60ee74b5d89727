// A GPU platform as a device of the engine.
#pragma once

#include <memory>

#include "backend/device.h"
#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/launch/executor.h"

namespace moeflux {

/// The device takes the platform's name.
std::unique_ptr<Device> make_gpu_device(std::unique_ptr<gpu::Platform> platform);

/// GPU kernels run by ordinary code: slow, and it sees every mistake.
std::unique_ptr<Device> make_emulator_device(const gpu::EmulatorOptions& options);

}  // namespace moeflux
