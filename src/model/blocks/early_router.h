// The next layer's router, applied before its turn: what it says of a token's present state is a
// guess at what it will say, and lets experts be read while this layer computes. Changes nothing
// but when bytes are read.
#pragma once

#include "model/blocks/moe.h"
#include "model/blocks/residual_stream.h"

namespace moeflux::blocks {

/// A norm of the residual, and the matrices of its gate; null: it has none.
struct ResidualNorm {
  Tensor weight;
  Weight down = {};
  Weight up = {};

  bool is_null() const { return weight.is_null(); }
};
/// rms_norm(x), or layer_norm(x) where the spec's norms subtract the mean, times its gate. out may
/// be x. Where `eps` is 0, it is the spec's.
void residual_norm(Encoder& e, const ModelSpec& spec, Tensor out, Tensor x,
                   const ResidualNorm& norm, float eps = 0.0f);

/// The input of the next MoE layer's router: residual_norm(what its branch reads now, norm).
struct EarlyRouter {
  LayerId layer{};
  const Residual* residual = nullptr;
  const ResidualStream* stream = nullptr;  // as it is when apply() is called
  ResidualNorm norm;
  const MoeWeights* weights = nullptr;
  const ModelSpec* model = nullptr;
};

/// Tells the store, if it wants to know, what the router would choose now for the rows of decode.
Status apply_early(const ForwardStep& step, const EarlyRouter& router);

}  // namespace moeflux::blocks
