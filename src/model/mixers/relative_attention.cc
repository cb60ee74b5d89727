#include "model/mixers/relative_attention.h"

#include <cmath>
#include <string>

#include "base/json.h"
#include "model/mixers/query_scale.h"
#include "model/model.h"
#include "model/repeated.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

// Tensors of the state, behind keys and values.
constexpr size_t kKeyInputs = 2;
constexpr size_t kValueInputs = 3;

float inverse_root(int64_t terms) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(terms)));
}

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
    if (spec.clips()) {
      take_clipped(weights, p, h);
    } else {
      q_scale_ = weights.vector(p + "q_norm.weight", {spec.head_dim}, place.norm_add);
      k_norm_ = weights.vector(p + "k_norm.weight", {spec.head_dim}, place.norm_add);
    }
    k_conv_ = take_conv(weights, p + "k_sconv.", h);
    v_conv_ = take_conv(weights, p + "v_sconv.", h);
    profiles_ = weights.float_matrix(p + "rel_logits_proj.proj", spec.num_profiles, spec.extent);
  }

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  struct Conv {
    Tensor taps;      // [channels, taps], the last one the token's own; of a token's own
                      // [taps, channels], the first one the token's own
    Weight of_token;  // null: all tokens have the same
  };
  void take_clipped(WeightStore& weights, const std::string& p, int64_t hidden);
  Conv take_conv(WeightStore& weights, const std::string& p, int64_t hidden) const;
  /// x projected, then x + conv(x).
  Tensor convolved(const ForwardStep& step, LayerId layer, Tensor x, const Weight& weight,
                   const Conv& conv, size_t state) const;
  /// [n, heads, extent]: the biases of each query by distance.
  Tensor biases(const ForwardStep& step, Tensor x) const;
  /// x [n, heads * width] times factors [heads, width], whose rows are then kept from being longer.
  void clip(Encoder& e, Tensor x, Tensor factors, float longest) const;

  const RelativeAttentionSpec spec_;
  const float eps_;
  Weight q_;
  Weight k_;
  Weight v_;
  Weight r_;
  Weight o_;
  Tensor q_scale_;  // of the norm; of all heads where there is none
  Tensor k_norm_;
  Tensor r_scale_;
  Weight sinks_;
  Weight gate_;
  Conv k_conv_;
  Conv v_conv_;
  Weight profiles_;
};

void RelativeAttentionMixer::take_clipped(WeightStore& weights, const std::string& p,
                                          int64_t hidden) {
  q_scale_ = weights.vector(p + "q_l2_clip.scale", {spec_.num_heads, spec_.head_dim});
  r_scale_ = weights.vector(p + "rel_l2_clip.scale", {spec_.num_heads, spec_.num_profiles});
  sinks_ = weights.matrix(p + "sink_proj", spec_.num_heads, hidden);
  gate_ = weights.matrix(p + "gate_proj", spec_.num_heads * spec_.head_dim, hidden);
}

RelativeAttentionMixer::Conv RelativeAttentionMixer::take_conv(WeightStore& weights,
                                                               const std::string& p,
                                                               int64_t hidden) const {
  const int64_t channels = spec_.num_kv_heads * spec_.head_dim;
  if (!spec_.token_taps) return {weights.vector(p + "weight", {channels, spec_.conv_taps}), {}};
  return {weights.vector(p + "static_w", {spec_.conv_taps, channels}),
          weights.float_matrix(p + "weight_proj", spec_.num_kv_heads * spec_.conv_taps, hidden)};
}

void RelativeAttentionMixer::clip(Encoder& e, Tensor x, Tensor factors, float longest) const {
  const Tensor row = factors.reshape({x.dim(1)});
  e.run(ops::MulActivated{x, x, rows_of_vector(row, x.dim(0)), Activation::kIdentity});
  e.run(ops::ClipRows{x.split_last(factors.dim(1)), longest});
}

Tensor RelativeAttentionMixer::convolved(const ForwardStep& step, LayerId layer, Tensor x,
                                         const Weight& weight, const Conv& conv,
                                         size_t state) const {
  Encoder& e = step.encoder;
  const Tensor projected = e.scratch({x.dim(0), weight.rows}, DType::kF32);
  const Tensor mixed = e.scratch({x.dim(0), weight.rows}, DType::kF32);
  e.run(ops::Linear{projected, x, weight});
  const std::span<const StateRows> states = step.batch.states(layer, state);
  int64_t terms = spec_.conv_taps + 1;
  if (conv.of_token.is_null()) {
    e.run(ops::CausalConv{mixed, projected, conv.taps, {Activation::kIdentity}, states});
  } else {
    const Tensor shares = e.scratch({x.dim(0), conv.of_token.rows}, DType::kF32);
    e.run(ops::Linear{shares, x, conv.of_token});
    e.run(ops::TokenConv{mixed, projected, conv.taps, shares.split_last(spec_.conv_taps), states});
    terms += spec_.conv_taps;
  }
  e.run(ops::Add{projected, projected, mixed});
  if (spec_.clips()) e.run(ops::Scale{projected, projected, inverse_root(terms)});
  return projected.split_last(spec_.head_dim);
}

Tensor RelativeAttentionMixer::biases(const ForwardStep& step, Tensor x) const {
  Encoder& e = step.encoder;
  const int64_t n = x.dim(0);
  const Tensor shares = e.scratch({n, r_.rows}, DType::kF32);
  const Tensor bias = e.scratch({n, spec_.num_heads, spec_.extent}, DType::kF32);
  e.run(ops::Linear{shares, x, r_});
  if (spec_.clips()) clip(e, shares, r_scale_, spec_.longest_shares);
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
  const bool is_one = x.shape.rank() == 2;
  const auto input = [&](int64_t i) {
    return is_one ? x : x.slice(0, i, 1).reshape({x.dim(1), x.dim(2)});
  };
  const Tensor own = input(0);
  const int64_t n = own.dim(0);
  const int64_t q_cols = spec_.num_heads * spec_.head_dim;
  const Tensor bias = biases(step, own);
  const Tensor k = convolved(step, layer, input(1), k_, k_conv_, kKeyInputs);
  const Tensor v = convolved(step, layer, input(2), v_, v_conv_, kValueInputs);
  const Tensor q = e.scratch({n, spec_.num_heads, spec_.head_dim}, DType::kF32);
  Tensor sinks;
  e.run(ops::Linear{q.reshape({n, q_cols}), own, q_});
  if (spec_.clips()) {
    clip(e, q.reshape({n, q_cols}), q_scale_, spec_.longest_head);
    e.run(ops::ClipRows{k, spec_.longest_head});
    e.run(ops::RmsNorm{v, v, {}, eps_});
    sinks = e.scratch({n, spec_.num_heads}, DType::kF32);
    e.run(ops::Linear{sinks, own, sinks_});
  } else {
    e.run(ops::RmsNorm{q, q, q_scale_, eps_});
    e.run(ops::RmsNorm{k, k, k_norm_, eps_});
  }
  if (spec_.query_scale.beta != 0.0) {
    scale_queries(e, q.reshape({n, q_cols}), step.batch, spec_.query_scale);
  }
  const Tensor mixed = e.scratch({n, spec_.num_heads, spec_.head_dim}, DType::kF32);
  e.run(ops::Attention{
      mixed,
      q,
      k,
      v,
      step.batch.key_values(layer),
      {.scale = spec_.scale, .window = spec_.window, .sinks = sinks, .distance_bias = bias}});
  if (spec_.clips()) {
    const Tensor gate = e.scratch({n, q_cols}, DType::kF32);
    const Tensor flat = mixed.reshape({n, q_cols});
    e.run(ops::Linear{gate, own, gate_});
    e.run(ops::MulActivated{flat, flat, gate, Activation::kSigmoid});
  }
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
  if (key == "qk_norm") return !clips();
  return nullptr;
}

}  // namespace moeflux
