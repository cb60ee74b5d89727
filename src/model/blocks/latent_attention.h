// Multi-head latent attention in absorbed form: a cache of kv_lora_rank + rope_dim values a token,
// shared by all heads. The up-projections of keys and values are folded into the query and the
// output per head, so the cache never expands to per-head keys and values.
#pragma once

#include <string>

#include "model/model.h"
#include "model/weight_store.h"

namespace moeflux::blocks {

struct LatentAttentionWeights {
  Weight q;    // q_proj, or q_a_proj when there is a low-rank query
  Weight q_b;  // null without one
  Tensor q_norm;
  Weight kv_a;
  Tensor kv_norm;
  /// Up-projections of keys and values. Hugging Face keeps both in kv_b_proj, per head nope_dim
  /// rows of keys and then v_dim rows of values over the latent; MLX splits them into embed_q,
  /// whose rows are the latent's (the keys' transposed), and unembed_out.
  Weight k_up;
  Weight v_up;
  bool k_up_is_transposed = false;
  Weight o;
  Tensor inverse_frequencies;
};

LatentAttentionWeights take_latent_attention(WeightStore& weights, const std::string& prefix,
                                             const LatentAttentionSpec& spec, int64_t hidden_size);

/// out [n, hidden] from x [n, hidden]; appends to the layer's latent cache.
void latent_attention(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                      const LatentAttentionWeights& weights, const LatentAttentionSpec& spec);

}  // namespace moeflux::blocks
