// Opens a device by the name a user gives it: the one place that knows every backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"

namespace moeflux {

/// The strings are as the command line and the public interface take them.
struct DeviceOptions {
  /// auto, cpu, cuda:N, metal, reference or emulator; auto: see choose_device().
  /// "cuda:N,shared=KIB,multiprocessors=N" plans as for a GPU that has only so much shared memory
  /// for a group, or multiprocessors; "cuda:N,memory=MIB" takes no more of its memory.
  /// "emulator,memory=MIB" has a memory of its own, of so much.
  std::string name = "cpu";
  int threads = 0;                 // of the CPU; 0: default_cpu_threads()
  bool pin_threads = false;        // each thread of the CPU on a core of its own
  std::string numa = "auto";       // of the CPU alone: off, distribute, isolate, numactl
  std::string isa;                 // forces the CPU kernels' instruction set, or "portable"
  std::string precision = "auto";  // of the CPU's activations: f32, int8, q16
};

/// The meaning of "auto", and why, for people; the reason is empty where there is no choice.
struct DeviceChoice {
  std::string name;
  std::string reason;
};
/// The first GPU that CUDA has, unless there is none or the options are the CPU's alone: an
/// instruction set, a precision, pinned threads. Never fails; a name that is not auto stays.
DeviceChoice choose_device(const DeviceOptions& options);

/// A device that this build knows by name.
struct ListedDevice {
  std::string name;
  std::string description;  // or why it is not there
  bool is_there = false;
  std::optional<uint64_t> free_bytes = {};  // of memory of its own
};
/// The CPU, each GPU, and the devices for tests.
std::vector<ListedDevice> list_devices();

size_t count_cuda_gpus();

/// Fails with kInvalidArgument for a name, instruction set or precision that does not exist, and as
/// the backends do.
Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options);

/// The CPU, with the bits that GPUs give experts: computes beside one of these options.
Result<std::unique_ptr<Device>> open_helper(const DeviceOptions& options);

/// "f32", "int16", "q16" or "int8": what the activations of a device of these options are where
/// they meet quantised weights. Fails as open_device().
Result<std::string> activation_precision(const DeviceOptions& options);

}  // namespace moeflux
