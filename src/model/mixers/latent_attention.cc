#include "model/mixers/latent_attention.h"

#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/portable_math.h"
#include "model/mixers/query_scale.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

Tensor take_latent_norm(WeightStore& weights, const std::string& name, int64_t rank,
                        const LatentAttentionSpec& s, int64_t hidden_size) {
  if (!s.lifts_latents) return weights.vector(name, {rank});
  const double lift = std::sqrt(static_cast<double>(hidden_size) / static_cast<double>(rank));
  return weights.mapped_vector(name, {rank},
                               [lift](float w) { return static_cast<float>(w * lift); });
}

Tensor take_frequencies(WeightStore& weights, const LatentAttentionSpec& s) {
  std::vector<float> frequencies = s.rope.inverse_frequencies;
  if (s.learned_rope) {
    const auto count = static_cast<int64_t>(frequencies.size());
    const std::vector<float> alpha = weights.host_vector("lerope.alpha", count, 0.0f);
    for (size_t i = 0; i < frequencies.size(); ++i) {
      frequencies[i] = static_cast<float>(frequencies[i] * portable_exp(alpha[i]));
    }
  }
  return weights.constant(frequencies);
}

LatentAttentionWeights take_weights(WeightStore& weights, const LatentAttentionSpec& s,
                                    const MixerPlace& place) {
  const std::string p = place.layer + "self_attn.";
  const int64_t hidden_size = place.hidden_size;
  LatentAttentionWeights w;
  const int64_t q_rows = s.num_heads * (s.nope_dim + s.rope_dim);
  if (s.q_lora_rank > 0) {
    w.q = weights.matrix(p + "q_a_proj", s.q_lora_rank, hidden_size);
    w.q_norm = take_latent_norm(weights, p + "q_a_layernorm.weight", s.q_lora_rank, s, hidden_size);
    const int64_t gate_rows = s.gate_in_query ? s.num_heads * s.v_dim : 0;
    if (s.gate_in_query && weights.has(p + "gate_b_proj.weight")) {
      w.q_b = weights.matrix(p + "q_b_proj", q_rows, s.q_lora_rank);
      w.gate = weights.matrix(p + "gate_b_proj", gate_rows, s.q_lora_rank);
    } else {
      w.q_b = weights.matrix(p + "q_b_proj", q_rows + gate_rows,
                             (s.gate_in_query ? 2 : 1) * s.q_lora_rank);
    }
  } else {
    w.q = weights.matrix(p + "q_proj", q_rows, hidden_size);
  }
  if (s.has_keys()) {
    w.kv_a = weights.matrix(p + "kv_a_proj_with_mqa", s.latent_dim(), hidden_size);
    w.kv_norm =
        take_latent_norm(weights, p + "kv_a_layernorm.weight", s.kv_lora_rank, s, hidden_size);
  }
  w.k_up_is_transposed = weights.has(p + "embed_q.weight");
  if (w.k_up_is_transposed) {
    w.k_up = weights.stacked_matrix(p + "embed_q", s.num_heads, s.kv_lora_rank, s.nope_dim);
    w.v_up = weights.stacked_matrix(p + "unembed_out", s.num_heads, s.v_dim, s.kv_lora_rank);
  } else {
    w.k_up = weights.per_head_matrix(p + "kv_b_proj", s.num_heads * (s.nope_dim + s.v_dim),
                                     s.kv_lora_rank);
    w.v_up = w.k_up;
  }
  if (s.bias) {
    if (s.q_lora_rank > 0) w.q_bias = weights.vector(p + "q_a_proj.bias", {s.q_lora_rank});
    if (s.has_keys()) {
      w.kv_bias = weights.vector(p + "kv_a_proj_with_mqa.bias", {s.latent_dim()});
    }
    w.o_bias = weights.vector(p + "o_proj.bias", {hidden_size});
  }
  if (s.gate != HeadGate::kNone) {
    const int64_t width = s.gate == HeadGate::kPerHead ? 1 : s.v_dim;
    w.gate = weights.matrix(p + "g_proj", s.num_heads * width, hidden_size);
  }
  if (s.rope_norm) w.rope_norm = weights.vector(p + "k_rope_only_layernorm.weight", {s.rope_dim});
  if (s.sinks) w.sinks = weights.vector(p + "sinks", {s.num_heads});
  if (s.logarithmic) {
    w.growth = {weights.vector(p + "ssmax_scaling.s", {s.num_heads}),
                weights.vector(p + "ssmax_scaling.b", {s.num_heads})};
  }
  w.o = weights.matrix(p + "o_proj", hidden_size, s.num_heads * s.v_dim);
  if (s.rope_dim > 0) w.inverse_frequencies = take_frequencies(weights, s);
  if (s.index) {
    w.index = take_weighted_index(weights, *s.index, place,
                                  s.q_lora_rank > 0 ? s.q_lora_rank : hidden_size);
    if (s.learned_rope) w.index.inverse_frequencies = w.inverse_frequencies;
  }
  return w;
}

}  // namespace

void LatentAttentionMixer::choose(const ForwardStep& step, LayerId layer, Tensor queries_from,
                                  Tensor x) const {
  if (!spec_.index) return;
  const size_t behind_latents = spec_.has_keys() ? 1 : 0;
  choose_keys(step, layer, *spec_.index, weights_.index, {queries_from, x, behind_latents},
              step.selection->ids);
}

void LatentAttentionMixer::make_queries(const ForwardStep& step, LayerId layer, Tensor q,
                                        Tensor low_rank, Tensor x) const {
  const LatentAttentionSpec& s = spec_;
  Encoder& e = step.encoder;
  if (s.q_lora_rank == 0) return choose(step, layer, x, x);
  const int64_t n = x.dim(0);
  const auto scratch = [&](int64_t cols) { return e.scratch({n, cols}, DType::kF32); };
  const Tensor normed = scratch(s.q_lora_rank);  // apart, so that the product may make it
  e.run(ops::RmsNorm{normed, low_rank, weights_.q_norm, s.latent_norm_eps});
  Tensor seen = normed;
  if (weights_.q_b.cols > s.q_lora_rank) {
    seen = scratch(2 * s.q_lora_rank);
    e.run(ops::Copy{seen.slice(1, 0, s.q_lora_rank), normed});
    e.run(ops::Copy{seen.slice(1, s.q_lora_rank, s.q_lora_rank), low_rank});
  }
  e.run(ops::Linear{q, seen, weights_.q_b});
  choose(step, layer, normed, x);
}

// Latents that are lent are written once more, where the layer that lends them has written them.
void LatentAttentionMixer::attend(const ForwardStep& step, LayerId layer, Tensor values, Tensor q,
                                  Tensor latent) const {
  const LatentAttentionSpec& s = spec_;
  const LatentAttentionWeights& w = weights_;
  const HeadRows stacked_k{s.kv_lora_rank, 0, s.kv_lora_rank};
  const HeadRows stacked_v{s.v_dim, 0, s.v_dim};
  const HeadRows k_rows{s.nope_dim + s.v_dim, 0, s.nope_dim};
  const HeadRows v_rows{s.nope_dim + s.v_dim, s.nope_dim, s.v_dim};
  const bool stacked = w.k_up_is_transposed;
  const LayerId keeper = s.has_keys() ? layer : LayerId{s.keys_of};
  step.encoder.run(ops::LatentAttention{values,
                                        q,
                                        latent,
                                        step.positions,
                                        step.batch.key_values(keeper, 0, 0),
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
                                         .selected = s.chooses() ? *step.selection : KeySelection{},
                                         .window = s.window,
                                         .sinks = w.sinks,
                                         .are_made = !s.has_keys()}});
}

void LatentAttentionMixer::forward(const ForwardStep& step, LayerId layer, Tensor out,
                                   Tensor x) const {
  const LatentAttentionSpec& s = spec_;
  const LatentAttentionWeights& w = weights_;
  Encoder& e = step.encoder;
  const int64_t n = x.dim(0);
  // Later layers may share the choice or the latents, so their memory is not this layer's.
  if (s.index && step.selection->is_null()) {
    *step.selection = s.index->selection(e.scratch(s.index->ids_shape(n), DType::kI32));
  }
  Tensor latent;
  if (!s.has_keys()) {
    latent = step.lent[static_cast<size_t>(s.keys_of)].k;
  } else if (s.lends_keys) {
    latent = e.scratch({n, s.latent_dim()}, DType::kF32);
    step.lent[static_cast<size_t>(index(layer))].k = latent;
  }
  ScratchScope scope(e);
  const auto scratch = [&](int64_t cols) { return e.scratch({n, cols}, DType::kF32); };
  if (latent.is_null()) latent = scratch(s.latent_dim());
  const int64_t q_dim = s.nope_dim + s.rope_dim;
  const bool fused_gate = s.gate_in_query && w.gate.is_null();
  const int64_t head_rows = q_dim + (fused_gate ? s.v_dim : 0);
  const Tensor both = scratch(s.num_heads * head_rows);
  const Tensor low_rank = s.q_lora_rank > 0 ? scratch(s.q_lora_rank) : both;
  // Beside each other, as they share their x.
  e.run(ops::Linear{low_rank, x, w.q});
  if (s.has_keys()) e.run(ops::Linear{latent, x, w.kv_a});
  if (!w.q_bias.is_null()) e.run(ops::AddBias{low_rank, w.q_bias});
  if (!w.kv_bias.is_null()) e.run(ops::AddBias{latent, w.kv_bias});
  Tensor gate;
  if (!w.gate.is_null()) {
    gate = scratch(w.gate.rows);
    e.run(ops::Linear{gate, s.gate_in_query ? low_rank : x, w.gate});
    gate = gate.split_last(w.gate.rows / s.num_heads);
  }
  make_queries(step, layer, both, low_rank, x);
  Tensor q = both.split_last(head_rows);
  if (fused_gate) {
    gate = q.slice(2, q_dim, s.v_dim);
    q = q.slice(2, 0, q_dim);
  }
  if (s.rope.query_scale.beta != 0.0) scale_queries(e, both, step.batch, s.rope.query_scale);
  if (s.logarithmic) scale_heads(e, q, step.batch, w.growth);
  if (s.rope_norm) {
    const Tensor turned = latent.slice(1, s.kv_lora_rank, s.rope_dim);
    e.run(ops::RmsNorm{turned, turned, w.rope_norm, s.latent_norm_eps});
  }
  const Tensor values = e.scratch({n, s.num_heads, s.v_dim}, DType::kF32);
  attend(step, layer, values, q, latent);
  if (!gate.is_null()) e.run(ops::MulActivated{values, values, gate, Activation::kSigmoid});
  e.run(ops::Linear{out, values.reshape({n, s.num_heads * s.v_dim}), w.o});
  if (!w.o_bias.is_null()) e.run(ops::AddBias{out, w.o_bias});
}

LayerStateSpec LatentAttentionSpec::state(const CacheTypes& types) const {
  // Values are the first kv_lora_rank elements of the keys.
  LayerStateSpec layer;
  if (has_keys()) {
    StateTensor latents = cached_heads(1, latent_dim(), types.keys);
    latents.tokens_read = tokens_read;
    latents.window = window;
    layer.tensors.push_back(latents);
  }
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
  if (key == "layer_type") return window > 0 ? "sliding_attention" : "full_attention";
  if (key == "attention_multiplier") return scale;
  if (key == "query_pre_attn_scalar") return std::pow(static_cast<double>(scale), -2.0);
  if (key == "rotary_dim") return rope.rotary_dim;
  if (key == "qk_norm") return false;
  return nullptr;
}

}  // namespace moeflux
