// Kernels of routing; kernel_list.h says what a line holds.
#pragma once

#include "backend/gpu/kernels/route/params.h"

#define MF_ROUTE_KERNELS(X)               \
  X(route_tokens, 5, RouteParams, kWaits) \
  X(route_many, 5, RouteParams, kWaits)   \
  X(route_listed, 6, RouteParams, kWaits) \
  X(share_weights, 3, ShareWeightsParams, kWaits)
