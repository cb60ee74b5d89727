// The CPU as a device: vector kernels chosen at run time, a thread pool per encoder.
#pragma once

#include <memory>
#include <string>

#include "backend/device.h"
#include "base/result.h"

namespace moeflux {

struct CpuOptions {
  int threads = 0;  // 0: every core this process may use
  std::string isa;  // "": the best this machine has; "generic", "avx2", "avx512", "neon" force one
};

/// Output bits depend on the instruction set, never on the number of threads. Fails with
/// kUnsupported when the machine lacks the instruction set, kInvalidArgument on a bad option.
Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options);

}  // namespace moeflux
