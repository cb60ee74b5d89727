#include "model/mixers/gated_delta.h"

#include <string>

#include "base/json.h"
#include "base/portable_math.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

// Tensors of the state.
constexpr size_t kConvState = 0;
constexpr size_t kDeltaState = 1;

struct GatedDeltaWeights {
  Weight all;  // q | k | v | z | b | a in place of the next four where they are one
  Weight qkv;  // q | k | v of all heads; where grouped q | k | v | z per key head
  Weight z;    // null where grouped
  Weight b;    // where grouped b | a per key head
  Weight a;    // null where grouped
  Weight out;
  Tensor conv;
  Tensor a_log;
  Tensor dt_bias;
  Tensor norm;
};

float log_of_negated(float rate) { return static_cast<float>(portable_log(-rate)); }

GatedDeltaWeights take_weights(WeightStore& weights, const GatedDeltaSpec& s,
                               const MixerPlace& place) {
  const std::string p = place.layer + "linear_attn.";
  const int64_t hidden_size = place.hidden_size;
  GatedDeltaWeights w;
  // GGUF files ungroup the first of the grouped projections.
  if (s.one_projection) {
    const int64_t rows = s.conv_channels() + s.values_width() + 2 * s.value_heads;
    w.all = weights.matrix(p + "in_proj", rows, hidden_size);
  } else if (s.grouped_projections && !weights.has(p + "in_proj_qkv.weight")) {
    w.qkv = weights.matrix(p + "in_proj_qkvz", s.conv_channels() + s.values_width(), hidden_size);
  } else {
    w.qkv = weights.matrix(p + "in_proj_qkv", s.conv_channels(), hidden_size);
    w.z = weights.matrix(p + "in_proj_z", s.values_width(), hidden_size);
  }
  if (s.grouped_projections) {
    w.b = weights.matrix(p + "in_proj_ba", 2 * s.value_heads, hidden_size);
  } else if (!s.one_projection) {
    w.b = weights.matrix(p + "in_proj_b", s.value_heads, hidden_size);
    w.a = weights.matrix(p + "in_proj_a", s.value_heads, hidden_size);
  }
  w.out = weights.matrix(p + "out_proj", hidden_size, s.values_width());
  w.conv = weights.vector(p + "conv1d.weight", {s.conv_channels(), s.conv_taps});
  // GGUF stores the rate itself. Its logarithm and the exponential that undoes it lose a rounding.
  w.a_log = weights.has(p + "decay_rate")
                ? weights.mapped_vector(p + "decay_rate", {s.value_heads}, log_of_negated)
                : weights.vector(p + "A_log", {s.value_heads});
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

/// Each key head's group of rows holds q | k | v | z of its own and its value heads' dimensions.
void ungroup_qkvz(Encoder& e, Projected& p, Tensor qkvz, const GatedDeltaSpec& s) {
  const int64_t values = s.values_width() / s.key_heads;
  const Tensor groups = qkvz.split_last(2 * s.key_dim + 2 * values);
  const int64_t keys = s.keys_width();
  e.run(ops::Copy{p.qkv.slice(1, 0, keys).split_last(s.key_dim), groups.slice(2, 0, s.key_dim)});
  e.run(ops::Copy{p.qkv.slice(1, keys, keys).split_last(s.key_dim),
                  groups.slice(2, s.key_dim, s.key_dim)});
  e.run(ops::Copy{p.qkv.slice(1, 2 * keys, s.values_width()).split_last(values),
                  groups.slice(2, 2 * s.key_dim, values)});
  p.z = groups.slice(2, 2 * s.key_dim + values, values);
}

Projected project_at_once(Encoder& e, Tensor x, const Weight& weight, const GatedDeltaSpec& s) {
  const auto scratch = [&](int64_t cols) { return e.scratch({x.dim(0), cols}, DType::kF32); };
  const Tensor all = scratch(weight.rows);
  e.run(ops::Linear{all, x, weight});
  int64_t begin = 0;
  const auto take = [&](int64_t cols) {
    const Tensor part = all.slice(1, begin, cols);
    begin += cols;
    return part;
  };
  // Beside each other in a row of all; the operations behind want rows of their own.
  const auto copy = [&](int64_t cols) {
    const Tensor part = scratch(cols);
    e.run(ops::Copy{part, take(cols)});
    return part;
  };
  Projected p;
  p.qkv = copy(s.conv_channels());
  p.z = take(s.values_width()).split_last(s.value_dim);
  p.b = copy(s.value_heads);
  p.a = copy(s.value_heads);
  return p;
}

Projected project(Encoder& e, Tensor x, const GatedDeltaWeights& w, const GatedDeltaSpec& s) {
  if (!w.all.is_null()) return project_at_once(e, x, w.all, s);
  const int64_t n = x.dim(0);
  const auto scratch = [&](int64_t cols) { return e.scratch({n, cols}, DType::kF32); };
  Projected p{scratch(s.conv_channels()), {}, scratch(s.value_heads), scratch(s.value_heads)};
  const bool has_grouped_qkvz = w.z.is_null();
  const bool has_grouped_ba = w.a.is_null();
  const Tensor qkvz = has_grouped_qkvz ? scratch(w.qkv.rows) : p.qkv;
  const Tensor ba = has_grouped_ba ? scratch(w.b.rows) : p.b;
  if (!has_grouped_qkvz) p.z = scratch(s.values_width());
  // Beside each other, as they share their x.
  e.run(ops::Linear{qkvz, x, w.qkv});
  if (!has_grouped_qkvz) e.run(ops::Linear{p.z, x, w.z});
  e.run(ops::Linear{ba, x, w.b});
  if (!has_grouped_ba) e.run(ops::Linear{p.a, x, w.a});
  if (has_grouped_qkvz) {
    ungroup_qkvz(e, p, qkvz, s);
  } else {
    p.z = p.z.split_last(s.value_dim);
  }
  if (has_grouped_ba) {
    const int64_t group_heads = s.value_heads / s.key_heads;
    const Tensor scalars = ba.split_last(2 * group_heads);
    e.run(ops::Copy{p.b.split_last(group_heads), scalars.slice(2, 0, group_heads)});
    e.run(ops::Copy{p.a.split_last(group_heads), scalars.slice(2, group_heads, group_heads)});
  }
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
  e.run(ops::CausalConv{mixed, p.qkv, w.conv, {}, step.batch.states(layer, kConvState)});
  const Tensor heads = e.scratch({n, s.values_width()}, DType::kF32);
  const Tensor per_head = heads.split_last(s.value_dim);
  e.run(ops::GatedDelta{per_head,
                        mixed,
                        p.a,
                        p.b,
                        w.a_log,
                        w.dt_bias,
                        step.batch.states(layer, kDeltaState),
                        {s.key_heads, s.value_heads, s.key_dim, s.value_dim, s.tiled_value_heads}});
  e.run(ops::RmsNorm{per_head, per_head, w.norm, rms_norm_eps_});
  const Tensor like_z = heads.split_last(p.z.shape.back());
  e.run(ops::MulActivated{like_z, like_z, p.z, s.gate});
  e.run(ops::Linear{out, heads, w.out});
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
