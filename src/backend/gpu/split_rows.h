// Activations as integers of products on matrix units, kept for the products that follow.
#pragma once

#include "backend/gpu/device_tables.h"
#include "backend/gpu/plan.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

/// What `x` was when it was split; null when its memory may hold something else since.
struct SplitRows {
  explicit SplitRows(Platform& platform) : space(platform) {}

  Tensor x;
  Binding integers;
  Binding sums;
  Workspace space;
};

}  // namespace moeflux::gpu
