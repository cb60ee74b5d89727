// Records the keys that an index has chosen, so that another run over the same tokens attends to
// the same: as routes are forced, what rounding does then shows without what a near tie makes of
// it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/device.h"

namespace moeflux::testing {

/// The bytes that select_keys() wrote, call by call.
using KeyChoices = std::vector<std::vector<std::byte>>;

/// The reference device, which appends to `choices`. They must outlive it.
std::unique_ptr<Device> make_recording_reference(KeyChoices& choices);

/// The CPU, whose indexes work as ever and are then overruled: call by call by `choices`, which
/// must outlive it, be of the same calls and all be used by the time an encoder ends. Anything else
/// is a gtest failure. The options' threads are not 0.
std::unique_ptr<Device> make_overruled_cpu(const CpuOptions& options, const KeyChoices& choices);

}  // namespace moeflux::testing
