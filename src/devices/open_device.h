// Opens a device by the name a user gives it: the one place that knows every backend.
#pragma once

#include <memory>
#include <string>

#include "backend/device.h"
#include "base/result.h"

namespace moeflux {

/// The strings are as the command line and the public interface take them.
struct DeviceOptions {
  std::string name = "cpu";       // cpu, cuda:N, reference or emulator
  int threads = 0;                // of the CPU; 0: one per usable core
  std::string isa;                // forces the CPU kernels' instruction set
  std::string precision = "f32";  // of the CPU's activations: f32 or int8
};

/// Fails with kInvalidArgument for a name, instruction set or precision that does not exist, and as
/// the backends do.
Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options);

}  // namespace moeflux
