// The next layer's router, applied before its turn: what it says of a token's present state is a
// guess at what it will say, and lets experts be read while this layer computes. Changes nothing
// but when bytes are read.
#pragma once

#include "model/blocks/moe.h"

namespace moeflux::blocks {

/// The input of the next MoE layer's router: rms_norm(residual, norm), or layer_norm.
struct EarlyRouter {
  LayerId layer{};
  Tensor residual;  // [n, hidden] as it is when apply() is called
  Tensor norm;
  float eps = 0.0f;
  bool subtracts_mean = false;
  const MoeWeights* weights = nullptr;
  const MoeSpec* spec = nullptr;
};

/// Tells the store, if it wants to know, what the router would choose now for the rows of decode.
Status apply_early(const ForwardStep& step, const EarlyRouter& router);

}  // namespace moeflux::blocks
