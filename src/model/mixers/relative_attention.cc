#include "model/mixers/relative_attention.h"

#include <cmath>
#include <string>

#include "base/json.h"
#include "model/mixers/query_scale.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

// Tensors of the state, behind keys and values.
constexpr size_t kKeyInputs = 2;
constexpr size_t kValueInputs = 3;

class RelativeAttentionMixer : public Mixer {
 public:
  RelativeAttentionMixer(const RelativeAttentionSpec& spec, WeightStore& weights,
                         const MixerPlace& place)
      : spec_(spec), eps_(place.rms_norm_eps) {
    const std::string p = place.layer + "self_attn.";
    const int64_t h = place.hidden_size;
    const int64_t kv_rows = spec.num_kv_heads * spec.head_dim;
    q_ = weights.matrix(p + "q_proj", spec.num_heads * spec.head_dim, h);
    k_ = weights.matrix(p + "k_proj", kv_rows, h);
    v_ = weights.matrix(p + "v_proj", kv_rows, h);
    r_ = weights.matrix(p + "r_proj", spec.num_heads * spec.num_profiles, h);
    o_ = weights.matrix(p + "o_proj", h, spec.num_heads * spec.head_dim);
    q_norm_ = weights.vector(p + "q_norm.weight", {spec.head_dim}, place.norm_add);
    k_norm_ = weights.vector(p + "k_norm.weight", {spec.head_dim}, place.norm_add);
    k_conv_ = weights.vector(p + "k_sconv.weight", {kv_rows, spec.conv_taps});
    v_conv_ = weights.vector(p + "v_sconv.weight", {kv_rows, spec.conv_taps});
    profiles_ = weights.float_matrix(p + "rel_logits_proj.proj", spec.num_profiles, spec.extent);
  }

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  /// x projected, then x + conv(x).
  Tensor convolved(const ForwardStep& step, LayerId layer, Tensor x, const Weight& weight,
                   Tensor conv, size_t state) const;
  /// [n, heads, extent]: the biases of each query by distance.
  Tensor biases(const ForwardStep& step, Tensor x) const;

  const RelativeAttentionSpec spec_;
  const float eps_;
  Weight q_;
  Weight k_;
  Weight v_;
  Weight r_;
  Weight o_;
  Tensor q_norm_;
  Tensor k_norm_;
  Tensor k_conv_;
  Tensor v_conv_;
  Weight profiles_;
};

Tensor RelativeAttentionMixer::convolved(const ForwardStep& step, LayerId layer, Tensor x,
                                         const Weight& weight, Tensor conv, size_t state) const {
  Encoder& e = step.encoder;
  const Tensor projected = e.scratch({x.dim(0), weight.rows}, DType::kF32);
  const Tensor mixed = e.scratch({x.dim(0), weight.rows}, DType::kF32);
  e.run(ops::Linear{projected, x, weight});
  e.run(ops::CausalConv{
      mixed, projected, conv, {Activation::kIdentity}, step.batch.states(layer, state)});
  e.run(ops::Add{projected, projected, mixed});
  return projected.split_last(spec_.head_dim);
}

Tensor RelativeAttentionMixer::biases(const ForwardStep& step, Tensor x) const {
  Encoder& e = step.encoder;
  const int64_t n = x.dim(0);
  const Tensor shares = e.scratch({n, r_.rows}, DType::kF32);
  const Tensor bias = e.scratch({n, spec_.num_heads, spec_.extent}, DType::kF32);
  e.run(ops::Linear{shares, x, r_});
  if (spec_.query_scale.beta != 0.0) scale_queries(e, shares, step.batch, spec_.query_scale);
  // All heads mix the same profiles.
  const HeadRows profiles{0, 0, spec_.num_profiles};
  e.run(
      ops::HeadLinearTransposed{bias, shares.split_last(spec_.num_profiles), profiles_, profiles});
  return bias;
}

void RelativeAttentionMixer::forward(const ForwardStep& step, LayerId layer, Tensor out,
                                     Tensor x) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const int64_t q_cols = spec_.num_heads * spec_.head_dim;
  const Tensor bias = biases(step, x);
  const Tensor k = convolved(step, layer, x, k_, k_conv_, kKeyInputs);
  const Tensor v = convolved(step, layer, x, v_, v_conv_, kValueInputs);
  const Tensor q = e.scratch({n, spec_.num_heads, spec_.head_dim}, DType::kF32);
  e.run(ops::Linear{q.reshape({n, q_cols}), x, q_});
  e.run(ops::RmsNorm{q, q, q_norm_, eps_});
  e.run(ops::RmsNorm{k, k, k_norm_, eps_});
  if (spec_.query_scale.beta != 0.0) {
    scale_queries(e, q.reshape({n, q_cols}), step.batch, spec_.query_scale);
  }
  const Tensor mixed = e.scratch({n, spec_.num_heads, spec_.head_dim}, DType::kF32);
  e.run(ops::Attention{mixed,
                       q,
                       k,
                       v,
                       step.batch.key_values(layer),
                       {.scale = spec_.scale, .window = spec_.window, .distance_bias = bias}});
  e.run(ops::Linear{out, mixed.reshape({n, q_cols}), o_});
}

}  // namespace

LayerStateSpec RelativeAttentionSpec::state(const CacheTypes& types) const {
  StateTensor keys = cached_heads(num_kv_heads, head_dim, types.keys);
  StateTensor values = cached_heads(num_kv_heads, head_dim, types.values);
  keys.window = values.window = window;
  // The last inputs of the convolutions, oldest first.
  const StateTensor inputs{.extent = StateExtent::kFixed,
                           .shape = {conv_taps - 1, num_kv_heads * head_dim}};
  return {{keys, values, inputs, inputs}};
}

Status RelativeAttentionSpec::has_state(const CacheTypes& types) const {
  MF_RETURN_IF_ERROR(check_cached_heads("keys of a head", head_dim, types.keys));
  return check_cached_heads("values of a head", head_dim, types.values);
}

std::unique_ptr<Mixer> RelativeAttentionSpec::take(WeightStore& weights,
                                                   const MixerPlace& place) const {
  return std::make_unique<RelativeAttentionMixer>(*this, weights, place);
}

Json RelativeAttentionSpec::config_value(std::string_view key) const {
  if (key == "layer_type") return window == 0 ? "hybrid" : "hybrid_sliding";
  if (key == "attention_multiplier") return scale;
  if (key == "query_pre_attn_scalar") return std::pow(static_cast<double>(scale), -2.0);
  if (key == "rotary_dim") return 0;
  if (key == "qk_norm") return true;
  return nullptr;
}

}  // namespace moeflux
