// The reference's math over tiles: a device that wants every matrix tiled that can be.
#pragma once

#include <memory>

#include "backend/device.h"

namespace moeflux::testing {

std::unique_ptr<Device> make_tiling_device();

}  // namespace moeflux::testing
