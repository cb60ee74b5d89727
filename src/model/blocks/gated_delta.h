// Gated DeltaNet: a causal convolution over q, k and v, the gated delta rule, a gated norm.
#pragma once

#include <string>

#include "model/model.h"
#include "model/weight_store.h"

namespace moeflux::blocks {

struct GatedDeltaWeights {
  Weight qkv;  // q | k | v of all heads; with grouped projections q | k | v | z per key head
  Weight z;    // null with grouped projections
  Weight b;    // with grouped projections b | a per key head
  Weight a;    // null with grouped projections
  Weight out;
  Tensor conv;
  Tensor a_log;
  Tensor dt_bias;
  Tensor norm;
};

GatedDeltaWeights take_gated_delta(WeightStore& weights, const std::string& prefix,
                                   const GatedDeltaSpec& spec, int64_t hidden_size);

/// out [n, hidden] from x [n, hidden]; updates the layer's recurrent state.
void gated_delta(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                 const GatedDeltaWeights& weights, const GatedDeltaSpec& spec, float rms_norm_eps);

/// Hugging Face stores these models' norms as w of (1 + w) and convolutions as [channels, 1, taps];
/// MLX stores 1 + w and [channels, taps, 1]. One convolution tells for the whole model: returns
/// what to add to norm weights.
float zero_centred_norm_add(const WeightStore& weights, int64_t num_layers);

}  // namespace moeflux::blocks
