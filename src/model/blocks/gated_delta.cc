#include "model/blocks/gated_delta.h"

#include "base/format.h"

namespace moeflux::blocks {

GatedDeltaWeights take_gated_delta(WeightStore& weights, const std::string& p,
                                   const GatedDeltaSpec& s, int64_t hidden_size) {
  GatedDeltaWeights w;
  if (s.grouped_projections) {
    w.qkv = weights.matrix(p + "in_proj_qkvz", s.conv_channels() + s.values_width(), hidden_size);
    w.b = weights.matrix(p + "in_proj_ba", 2 * s.value_heads, hidden_size);
  } else {
    w.qkv = weights.matrix(p + "in_proj_qkv", s.conv_channels(), hidden_size);
    w.z = weights.matrix(p + "in_proj_z", s.values_width(), hidden_size);
    w.b = weights.matrix(p + "in_proj_b", s.value_heads, hidden_size);
    w.a = weights.matrix(p + "in_proj_a", s.value_heads, hidden_size);
  }
  w.out = weights.matrix(p + "out_proj", hidden_size, s.values_width());
  w.conv = weights.vector(p + "conv1d.weight", {s.conv_channels(), s.conv_taps});
  w.a_log = weights.vector(p + "A_log", {s.value_heads});
  w.dt_bias = weights.vector(p + "dt_bias", {s.value_heads});
  w.norm = weights.vector(p + "norm.weight", {s.value_dim});
  return w;
}

namespace {

// Results of a layer's projections: the convolution's input, the output gate and the two scalars a
// head.
struct Projected {
  Tensor qkv;  // [n, conv_channels]
  Tensor z;    // [n, rows, cols] covering value_heads x value_dim, any strides
  Tensor a;    // [n, value_heads]
  Tensor b;
};

Projected project(Encoder& e, Tensor x, const GatedDeltaWeights& w, const GatedDeltaSpec& s) {
  const int64_t n = x.dim(0);
  const auto scratch = [&](int64_t cols) { return e.scratch({n, cols}, DType::kF32); };
  Projected p{scratch(s.conv_channels()), {}, scratch(s.value_heads), scratch(s.value_heads)};
  if (!s.grouped_projections) {
    p.z = scratch(s.values_width());
    e.linear(p.qkv, x, w.qkv);
    e.linear(p.z, x, w.z);
    e.linear(p.b, x, w.b);
    e.linear(p.a, x, w.a);
    p.z = p.z.split_last(s.value_dim);
    return p;
  }
  // Each key head's group of rows holds q | k | v | z of its own and its value heads' dimensions.
  const int64_t values = s.values_width() / s.key_heads;
  const int64_t group_heads = s.value_heads / s.key_heads;
  const Tensor qkvz = scratch(w.qkv.rows);
  const Tensor ba = scratch(w.b.rows);
  e.linear(qkvz, x, w.qkv);
  e.linear(ba, x, w.b);
  const Tensor groups = qkvz.split_last(2 * s.key_dim + 2 * values);
  const int64_t keys = s.keys_width();
  e.copy(p.qkv.slice(1, 0, keys).split_last(s.key_dim), groups.slice(2, 0, s.key_dim));
  e.copy(p.qkv.slice(1, keys, keys).split_last(s.key_dim), groups.slice(2, s.key_dim, s.key_dim));
  e.copy(p.qkv.slice(1, 2 * keys, s.values_width()).split_last(values),
         groups.slice(2, 2 * s.key_dim, values));
  p.z = groups.slice(2, 2 * s.key_dim + values, values);
  const Tensor scalars = ba.split_last(2 * group_heads);
  e.copy(p.b.split_last(group_heads), scalars.slice(2, 0, group_heads));
  e.copy(p.a.split_last(group_heads), scalars.slice(2, group_heads, group_heads));
  return p;
}

}  // namespace

void gated_delta(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                 const GatedDeltaWeights& w, const GatedDeltaSpec& s, float rms_norm_eps) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const Projected p = project(e, x, w, s);
  const Tensor mixed = e.scratch({n, s.conv_channels()}, DType::kF32);
  e.causal_conv(mixed, p.qkv, w.conv, step.batch.conv_states(layer));
  const Tensor heads = e.scratch({n, s.values_width()}, DType::kF32);
  const Tensor per_head = heads.split_last(s.value_dim);
  e.gated_delta(per_head, mixed, p.a, p.b, w.a_log, w.dt_bias, step.batch.delta_states(layer),
                {s.key_heads, s.value_heads, s.key_dim, s.value_dim});
  e.rms_norm(per_head, per_head, w.norm, rms_norm_eps);
  const Tensor like_z = heads.split_last(p.z.shape.back());
  e.mul_activated(like_z, like_z, p.z, Activation::kSilu);
  e.linear(out, heads, w.out);
}

float zero_centred_norm_add(const WeightStore& weights, int64_t num_layers) {
  for (int64_t i = 0; i < num_layers; ++i) {
    const TensorEntry* conv = weights.find(formatted("layers.{}.linear_attn.conv1d.weight", i));
    if (conv != nullptr && conv->shape.rank() == 3) return conv->shape.back() != 1 ? 1.0f : 0.0f;
  }
  return weights.has("layers.0.mlp.switch_mlp.gate_proj.weight") ? 0.0f : 1.0f;
}

}  // namespace moeflux::blocks
