// One device made of several: the layers of a model are split between them. A layer's weights,
// experts and states lie on one, and what an operation touches says which computes it. All else,
// scratch among it, has a copy on each.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"
#include "base/result.h"

namespace moeflux {

/// Takes two or more GPUs with the same kernels, in the order of layers. Where work goes from one
/// to the next, scratch that is in use is copied. Bits are those of one device if all are of one
/// kind; else bits_key() names them all, and a layer has the bits of its own. Fails with
/// kInvalidArgument for devices of different backends.
Result<std::unique_ptr<Device>> make_split_device(std::vector<std::unique_ptr<Device>> parts);

}  // namespace moeflux
