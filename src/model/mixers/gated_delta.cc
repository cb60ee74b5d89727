#include "model/mixers/gated_delta.h"

#include <string>

#include "model/model.h"
#include "model/weight_store.h"

namespace moeflux {
namespace {

// Tensors of the state.
constexpr size_t kConvState = 0;
constexpr size_t kDeltaState = 1;

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

GatedDeltaWeights take_weights(WeightStore& weights, const GatedDeltaSpec& s,
                               const MixerPlace& place) {
  const std::string p = place.layer + "linear_attn.";
  const int64_t hidden_size = place.hidden_size;
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

class GatedDeltaMixer : public Mixer {
 public:
  GatedDeltaMixer(const GatedDeltaSpec& spec, WeightStore& weights, const MixerPlace& place)
      : spec_(spec),
        weights_(take_weights(weights, spec, place)),
        rms_norm_eps_(place.rms_norm_eps) {}

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  const GatedDeltaSpec spec_;
  const GatedDeltaWeights weights_;
  const float rms_norm_eps_;
};

void GatedDeltaMixer::forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const {
  const GatedDeltaSpec& s = spec_;
  const GatedDeltaWeights& w = weights_;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const Projected p = project(e, x, w, s);
  const Tensor mixed = e.scratch({n, s.conv_channels()}, DType::kF32);
  e.causal_conv(mixed, p.qkv, w.conv, Activation::kSilu, step.batch.states(layer, kConvState));
  const Tensor heads = e.scratch({n, s.values_width()}, DType::kF32);
  const Tensor per_head = heads.split_last(s.value_dim);
  e.gated_delta(per_head, mixed, p.a, p.b, w.a_log, w.dt_bias,
                step.batch.states(layer, kDeltaState),
                {s.key_heads, s.value_heads, s.key_dim, s.value_dim});
  e.rms_norm(per_head, per_head, w.norm, rms_norm_eps_);
  const Tensor like_z = heads.split_last(p.z.shape.back());
  e.mul_activated(like_z, like_z, p.z, Activation::kSilu);
  e.linear(out, heads, w.out);
}

}  // namespace

LayerStateSpec GatedDeltaSpec::state(const CacheTypes&) const {
  // The last inputs of the convolution, oldest first, and the delta rule's matrix of each head.
  return {{{.extent = StateExtent::kFixed, .shape = {conv_taps - 1, conv_channels()}},
           {.extent = StateExtent::kFixed, .shape = {value_heads, key_dim, value_dim}}}};
}

std::unique_ptr<Mixer> GatedDeltaSpec::take(WeightStore& weights, const MixerPlace& place) const {
  return std::make_unique<GatedDeltaMixer>(*this, weights, place);
}

Json GatedDeltaSpec::config_value(std::string_view key) const {
  return key == "layer_type" ? Json("linear_attention") : Json();
}

}  // namespace moeflux
