// A GPU as most people own: what tests and measurements have larger ones, and the emulator, plan
// for.
#pragma once

#include <cstdint>

namespace moeflux::testing {

/// Shared memory of a group on compute capabilities 8.6, 8.9 and 12.0.
constexpr uint32_t kSmallGpuSharedKib = 99;
/// Multiprocessors of an RTX 4060.
constexpr uint32_t kSmallGpuCores = 24;

}  // namespace moeflux::testing
