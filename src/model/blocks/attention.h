// Attention over keys and values: grouped queries, q/k norms, partial rope, windows, sinks, output
// gates.
#pragma once

#include <string>

#include "model/model.h"
#include "model/weight_store.h"

namespace moeflux::blocks {

struct AttentionWeights {
  Weight q;
  Weight k;
  Weight v;  // null when values are the keys
  Weight o;
  Tensor q_bias;
  Tensor k_bias;
  Tensor v_bias;
  Tensor o_bias;
  Tensor q_norm;
  Tensor k_norm;
  Tensor sinks;
  Tensor inverse_frequencies;
};

struct AttentionNames {
  std::string prefix;           // "layers.0.self_attn."
  std::string sinks = "sinks";  // below prefix
};

/// Claims q_proj, k_proj, v_proj, o_proj and what the spec asks for beside them. `norm_add` is
/// added to norm weights.
AttentionWeights take_attention(WeightStore& weights, const AttentionNames& names,
                                const AttentionSpec& spec, int64_t hidden_size,
                                float norm_add = 0.0f);

/// out [n, hidden] from x [n, hidden]; appends to the layer's keys and values.
void attention(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
               const AttentionWeights& weights, const AttentionSpec& spec, float rms_norm_eps);

}  // namespace moeflux::blocks
