#include "model/mixers/latent_attention.h"

#include <cmath>
#include <string>

#include "base/json.h"
#include "model/mixers/query_scale.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

LatentAttentionWeights take_weights(WeightStore& weights, const LatentAttentionSpec& s,
                                    const MixerPlace& place) {
  const std::string p = place.layer + "self_attn.";
  const int64_t hidden_size = place.hidden_size;
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
  if (s.head_gate) w.gate = weights.matrix(p + "g_proj", s.num_heads, hidden_size);
  w.o = weights.matrix(p + "o_proj", hidden_size, s.num_heads * s.v_dim);
  if (s.rope_dim > 0) w.inverse_frequencies = weights.constant(s.rope.inverse_frequencies);
  if (s.index) w.index = take_weighted_index(weights, *s.index, place, s.q_lora_rank);
  return w;
}

}  // namespace

void LatentAttentionMixer::forward(const ForwardStep& step, LayerId layer, Tensor out,
                                   Tensor x) const {
  const LatentAttentionSpec& s = spec_;
  const LatentAttentionWeights& w = weights_;
  Encoder& e = step.encoder;
  const int64_t n = x.dim(0);
  // Later layers may share the choice, so its memory is not this layer's.
  if (s.index && step.selection->is_null()) {
    *step.selection = s.index->selection(e.scratch(s.index->ids_shape(n), DType::kI32));
  }
  ScratchScope scope(e);
  const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };

  const Tensor latent = scratch({n, s.latent_dim()});
  const Tensor q = scratch({n, s.num_heads * (s.nope_dim + s.rope_dim)});
  const Tensor low_rank = s.q_lora_rank > 0 ? scratch({n, s.q_lora_rank}) : q;
  // Beside each other, as they share their x.
  e.run(ops::Linear{low_rank, x, w.q});
  e.run(ops::Linear{latent, x, w.kv_a});
  const Tensor gate = s.head_gate ? scratch({n, s.num_heads}) : Tensor{};
  if (s.head_gate) e.run(ops::Linear{gate, x, w.gate});
  if (s.q_lora_rank > 0) {
    const Tensor normed = scratch({n, s.q_lora_rank});  // apart, so that the product may make it
    e.run(ops::RmsNorm{normed, low_rank, w.q_norm, s.latent_norm_eps});
    e.run(ops::Linear{q, normed, w.q_b});
    if (s.index) choose_keys(step, layer, *s.index, w.index, {normed, x, 1}, step.selection->ids);
  }
  if (s.rope.query_scale.beta != 0.0) scale_queries(e, q, step.batch, s.rope.query_scale);
  const HeadRows stacked_k{s.kv_lora_rank, 0, s.kv_lora_rank};
  const HeadRows stacked_v{s.v_dim, 0, s.v_dim};
  const HeadRows k_rows{s.nope_dim + s.v_dim, 0, s.nope_dim};
  const HeadRows v_rows{s.nope_dim + s.v_dim, s.nope_dim, s.v_dim};
  const bool stacked = w.k_up_is_transposed;
  const Tensor values = scratch({n, s.num_heads, s.v_dim});
  e.run(ops::LatentAttention{values,
                             q.split_last(s.nope_dim + s.rope_dim),
                             latent,
                             step.positions,
                             step.batch.key_values(layer, 0, 0),
                             {.norm = w.kv_norm,
                              .norm_eps = s.latent_norm_eps,
                              .inverse_frequencies = w.inverse_frequencies,
                              .rope = s.rope.options(),
                              .k_up = w.k_up,
                              .k_rows = stacked ? stacked_k : k_rows,
                              .k_up_is_transposed = stacked,
                              .v_up = w.v_up,
                              .v_rows = stacked ? stacked_v : v_rows,
                              .scale = s.scale,
                              .selected = s.chooses() ? *step.selection : KeySelection{}}});
  if (s.head_gate)
    e.run(ops::MulActivated{values, values, gate.split_last(1), Activation::kSigmoid});
  e.run(ops::Linear{out, values.reshape({n, s.num_heads * s.v_dim}), w.o});
}

LayerStateSpec LatentAttentionSpec::state(const CacheTypes& types) const {
  // Values are the first kv_lora_rank elements of the keys.
  StateTensor latents = cached_heads(1, latent_dim(), types.keys);
  latents.tokens_read = tokens_read;
  LayerStateSpec layer{{latents}};
  if (index) index->add_state(types, layer.tensors);
  return layer;
}

Status LatentAttentionSpec::has_state(const CacheTypes& types) const {
  MF_RETURN_IF_ERROR(check_cached_heads("latents", kv_lora_rank, types.keys));
  return check_cached_heads("rotary parts of latents", rope_dim, types.keys);
}

std::unique_ptr<Mixer> LatentAttentionSpec::take(WeightStore& weights,
                                                 const MixerPlace& place) const {
  return std::make_unique<LatentAttentionMixer>(*this, take_weights(weights, *this, place));
}

Json LatentAttentionSpec::config_value(std::string_view key) const {
  if (key == "layer_type") return "full_attention";
  if (key == "attention_multiplier") return scale;
  if (key == "query_pre_attn_scalar") return std::pow(static_cast<double>(scale), -2.0);
  if (key == "rotary_dim") return rope.rotary_dim;
  if (key == "qk_norm") return false;
  return nullptr;
}

}  // namespace moeflux
