// The oracle: every operation as its formula reads, scalar, single-threaded, accumulating in f64.
#pragma once

#include <memory>

#include "backend/device.h"

namespace moeflux {

std::unique_ptr<Device> make_reference_device();

}  // namespace moeflux
