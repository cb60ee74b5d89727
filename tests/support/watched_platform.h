// A GPU platform that counts what goes by: which kernels a device was given, and how much was read.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "backend/gpu/launch/executor.h"

namespace moeflux::testing {

/// Launches by kernel, and what was read, of every executor of the platform; outlives it. For one
/// thread.
struct LaunchCounts {
  std::array<size_t, gpu::kKernels.size()> of_kernel{};
  size_t bytes_read = 0;

  /// Launches of products on matrix units, whose activations are integers of 16 bits.
  size_t of_units() const;
};

std::unique_ptr<gpu::Platform> make_watched_platform(std::unique_ptr<gpu::Platform> platform,
                                                     LaunchCounts& counts);

}  // namespace moeflux::testing
