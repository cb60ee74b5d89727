#include "model/blocks/latent_attention.h"

namespace moeflux::blocks {

LatentAttentionWeights take_latent_attention(WeightStore& weights, const std::string& p,
                                             const LatentAttentionSpec& s, int64_t hidden_size) {
  LatentAttentionWeights w;
  const int64_t q_rows = s.num_heads * (s.nope_dim + s.rope_dim);
  if (s.q_lora_rank > 0) {
    w.q = weights.matrix(p + "q_a_proj", s.q_lora_rank, hidden_size);
    w.q_norm = weights.vector(p + "q_a_layernorm.weight", {s.q_lora_rank});
    w.q_b = weights.matrix(p + "q_b_proj", q_rows, s.q_lora_rank);
  } else {
    w.q = weights.matrix(p + "q_proj", q_rows, hidden_size);
  }
  w.kv_a = weights.matrix(p + "kv_a_proj_with_mqa", s.latent_dim(), hidden_size);
  w.kv_norm = weights.vector(p + "kv_a_layernorm.weight", {s.kv_lora_rank});
  w.k_up_is_transposed = weights.has(p + "embed_q.weight");
  if (w.k_up_is_transposed) {
    w.k_up = weights.stacked_matrix(p + "embed_q", s.num_heads, s.kv_lora_rank, s.nope_dim);
    w.v_up = weights.stacked_matrix(p + "unembed_out", s.num_heads, s.v_dim, s.kv_lora_rank);
  } else {
    w.k_up = weights.per_head_matrix(p + "kv_b_proj", s.num_heads * (s.nope_dim + s.v_dim),
                                     s.kv_lora_rank);
    w.v_up = w.k_up;
  }
  w.o = weights.matrix(p + "o_proj", hidden_size, s.num_heads * s.v_dim);
  w.inverse_frequencies = weights.constant(s.rope.inverse_frequencies);
  return w;
}

void latent_attention(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                      const LatentAttentionWeights& w, const LatentAttentionSpec& s) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };

  Tensor q = scratch({n, s.num_heads * (s.nope_dim + s.rope_dim)});
  if (s.q_lora_rank > 0) {
    const Tensor low_rank = scratch({n, s.q_lora_rank});
    e.linear(low_rank, x, w.q);
    e.rms_norm(low_rank, low_rank, w.q_norm, s.latent_norm_eps);
    e.linear(q, low_rank, w.q_b);
  } else {
    e.linear(q, x, w.q);
  }
  q = q.split_last(s.nope_dim + s.rope_dim);
  const Tensor q_nope = q.slice(2, 0, s.nope_dim);
  const Tensor q_rope = q.slice(2, s.nope_dim, s.rope_dim);

  // The token's latent, normalised, and the rotary key that all heads share, which is not.
  const Tensor latent = scratch({n, s.latent_dim()});
  e.linear(latent, x, w.kv_a);
  const Tensor compressed = latent.slice(1, 0, s.kv_lora_rank);
  e.rms_norm(compressed, compressed, w.kv_norm, s.latent_norm_eps);
  const Tensor k_rope = latent.slice(1, s.kv_lora_rank, s.rope_dim).split_last(s.rope_dim);
  e.rope(q_rope, step.positions, w.inverse_frequencies, s.rope.options());
  e.rope(k_rope, step.positions, w.inverse_frequencies, s.rope.options());

  const Tensor query = scratch({n, s.num_heads, s.latent_dim()});
  const Tensor query_latent = query.slice(2, 0, s.kv_lora_rank);
  if (w.k_up_is_transposed) {
    e.head_linear(query_latent, q_nope, w.k_up, {s.kv_lora_rank, 0, s.kv_lora_rank});
  } else {
    e.head_linear_transposed(query_latent, q_nope, w.k_up, {s.nope_dim + s.v_dim, 0, s.nope_dim});
  }
  e.copy(query.slice(2, s.kv_lora_rank, s.rope_dim), q_rope);

  const Tensor mixed = scratch({n, s.num_heads, s.kv_lora_rank});
  e.attention(mixed, query, latent.split_last(s.latent_dim()), Tensor{},
              step.state.key_value(layer), {.scale = s.scale});
  const Tensor values = scratch({n, s.num_heads, s.v_dim});
  e.head_linear(values, mixed, w.v_up,
                w.k_up_is_transposed ? HeadRows{s.v_dim, 0, s.v_dim}
                                     : HeadRows{s.nope_dim + s.v_dim, s.nope_dim, s.v_dim});
  e.linear(out, values.reshape({n, s.num_heads * s.v_dim}), w.o);
}

}  // namespace moeflux::blocks
