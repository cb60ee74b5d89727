#include "model/mixers/convolved_attention.h"

#include <string>
#include <vector>

#include "base/json.h"
#include "model/model.h"
#include "model/repeated.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

// Tensors of the state, behind keys and values.
constexpr size_t kChannelInputs = 2;
constexpr size_t kDelayedValues = 3;
constexpr size_t kDelayed = 4;  // the first of head_taps - 1

// Beside the mean square of a head: heads of zeros stay zeros.
constexpr float kNormEps = 1e-16f;

struct BiasedProjection {
  Weight weight;
  Tensor bias;  // null without one
};

class ConvolvedAttentionMixer : public Mixer {
 public:
  ConvolvedAttentionMixer(const ConvolvedAttentionSpec& spec, WeightStore& weights,
                          const MixerPlace& place)
      : spec_(spec) {
    const std::string p = place.layer + "self_attn.";
    const std::string in = p + "qkv_proj.";
    const int64_t hidden = place.hidden_size;
    const int64_t channels = spec.channels();
    const int64_t kv_rows = spec.num_kv_heads * spec.head_dim;
    const auto take = [&](const std::string& name, int64_t rows, int64_t cols) {
      return BiasedProjection{weights.matrix(name, rows, cols),
                              spec.bias ? weights.vector(name + ".bias", {rows}) : Tensor{}};
    };
    q_ = take(in + "q_proj", spec.num_heads * spec.head_dim, hidden);
    k_ = take(in + "k_proj", kv_rows, hidden);
    v_current_ = take(in + "v_proj_current", kv_rows / 2, hidden);
    v_delayed_ = take(in + "v_proj_delayed", kv_rows / 2, hidden);
    o_ = take(p + "o_proj", hidden, spec.num_heads * spec.head_dim);
    channel_taps_ = weights.vector(in + "conv_qk_depthwise.weight", {channels, spec.channel_taps});
    channel_bias_ = weights.vector(in + "conv_qk_depthwise.bias", {channels});
    head_taps_ = weights.float_matrix(in + "conv_qk_grouped.weight", channels,
                                      spec.head_dim * spec.head_taps,
                                      {channels, spec.head_dim, spec.head_taps});
    head_bias_ = weights.vector(in + "conv_qk_grouped.bias", {channels});
    key_scale_ = weights.vector(p + "qk_norm.temp", {spec.num_kv_heads});
    inverse_frequencies_ = weights.constant(spec.rope.inverse_frequencies);
    std::vector<float> before(static_cast<size_t>(2 * channels), 0.0f);
    for (size_t i = 0; i < before.size(); i += 2) before[i] = 1.0f;
    before_ = weights.constant(before).reshape({channels, 2});
  }

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  struct Heads {
    Tensor q;  // [n, heads, head_dim]
    Tensor k;
  };
  Tensor project(Encoder& e, Tensor x, const BiasedProjection& projection) const;
  /// x [n, channels] as it was one token before.
  void delay(const ForwardStep& step, LayerId layer, Tensor out, Tensor x, size_t state) const;
  Heads make_heads(const ForwardStep& step, LayerId layer, Tensor x) const;
  /// [n, heads and kv heads, head_dim] from queries and keys [n, channels].
  Tensor convolved(const ForwardStep& step, LayerId layer, Tensor qk) const;
  Tensor make_values(const ForwardStep& step, LayerId layer, Tensor x) const;

  const ConvolvedAttentionSpec spec_;
  BiasedProjection q_;
  BiasedProjection k_;
  BiasedProjection v_current_;
  BiasedProjection v_delayed_;
  BiasedProjection o_;
  Tensor channel_taps_;
  Tensor channel_bias_;
  Weight head_taps_;  // [channels, head_dim * head_taps], the taps of an input beside each other
  Tensor head_bias_;
  Tensor key_scale_;
  Tensor inverse_frequencies_;
  Tensor before_;  // the taps of a delay by one token
};

Tensor ConvolvedAttentionMixer::project(Encoder& e, Tensor x,
                                        const BiasedProjection& projection) const {
  const Tensor out = e.scratch({x.dim(0), projection.weight.rows}, DType::kF32);
  e.run(ops::Linear{out, x, projection.weight});
  if (!projection.bias.is_null()) e.run(ops::AddBias{out, projection.bias});
  return out;
}

void ConvolvedAttentionMixer::delay(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                                    size_t state) const {
  step.encoder.run(ops::CausalConv{out,
                                   x,
                                   before_.slice(0, 0, x.dim(1)),
                                   {Activation::kIdentity},
                                   step.batch.states(layer, state)});
}

// A text follows zeros in front of the first convolution, whose bias the second one
// sees there too: so the bias is added behind the delays.
Tensor ConvolvedAttentionMixer::convolved(const ForwardStep& step, LayerId layer, Tensor qk) const {
  Encoder& e = step.encoder;
  const int64_t n = qk.dim(0);
  const int64_t channels = spec_.channels();
  const int64_t taps = spec_.head_taps;
  const Tensor inputs = e.scratch({n, channels * taps}, DType::kF32);
  const Tensor biased = e.scratch(qk.shape, DType::kF32);
  Tensor now = e.scratch(qk.shape, DType::kF32);
  Tensor earlier = e.scratch(qk.shape, DType::kF32);
  e.run(ops::CausalConv{
      now, qk, channel_taps_, {Activation::kIdentity}, step.batch.states(layer, kChannelInputs)});
  for (int64_t tap = taps - 1; tap >= 0; --tap) {
    e.run(ops::Copy{biased, now});
    e.run(ops::AddBias{biased, channel_bias_});
    e.run(ops::Copy{inputs.split_last(taps).slice(2, tap, 1), biased.split_last(1)});
    if (tap == 0) break;
    delay(step, layer, earlier, now, kDelayed + static_cast<size_t>(taps - 1 - tap));
    std::swap(now, earlier);
  }
  const Tensor out = biased.split_last(spec_.head_dim);
  e.run(ops::HeadLinear{out,
                        inputs.split_last(spec_.head_dim * taps),
                        head_taps_,
                        {spec_.head_dim, 0, spec_.head_dim}});
  e.run(ops::AddBias{biased, head_bias_});
  return out;
}

ConvolvedAttentionMixer::Heads ConvolvedAttentionMixer::make_heads(const ForwardStep& step,
                                                                   LayerId layer, Tensor x) const {
  Encoder& e = step.encoder;
  const int64_t n = x.dim(0);
  const int64_t group = spec_.num_heads / spec_.num_kv_heads;
  const int64_t q_cols = spec_.num_heads * spec_.head_dim;
  const int64_t k_cols = spec_.num_kv_heads * spec_.head_dim;
  const Tensor q = project(e, x, q_);
  const Tensor k = project(e, x, k_);
  const Tensor qk = e.scratch({n, q_cols + k_cols}, DType::kF32);
  e.run(ops::Copy{qk.slice(1, 0, q_cols), q});
  e.run(ops::Copy{qk.slice(1, q_cols, k_cols), k});
  const Tensor mixed = convolved(step, layer, qk);
  // A query's mean with its key stays beside it, and the mean of these beside the key.
  const Tensor keys = k.split_last(spec_.head_dim);
  const Tensor groups = q.reshape({n, spec_.num_kv_heads, group * spec_.head_dim});
  const auto query = [&](int64_t i) { return groups.slice(2, i * spec_.head_dim, spec_.head_dim); };
  for (int64_t i = 0; i < group; ++i) e.run(ops::Add{query(i), query(i), keys});
  e.run(ops::Scale{q, q, 0.5f});
  e.run(ops::Copy{keys, query(0)});
  for (int64_t i = 1; i < group; ++i) e.run(ops::Add{keys, keys, query(i)});
  e.run(ops::Scale{k, k, 1.0f / static_cast<float>(group)});
  const Tensor queries = q.split_last(spec_.head_dim);
  e.run(ops::Add{queries, queries, mixed.slice(1, 0, spec_.num_heads)});
  e.run(ops::Add{keys, keys, mixed.slice(1, spec_.num_heads, spec_.num_kv_heads)});
  return {queries, keys};
}

Tensor ConvolvedAttentionMixer::make_values(const ForwardStep& step, LayerId layer,
                                            Tensor x) const {
  Encoder& e = step.encoder;
  const int64_t half = v_current_.weight.rows;
  const Tensor v = e.scratch({x.dim(0), 2 * half}, DType::kF32);
  const Tensor next = e.scratch({x.dim(0), half}, DType::kF32);
  const Tensor delayed = e.scratch({x.dim(0), half}, DType::kF32);
  // Before a text is a state of zeros, whose projection is the bias.
  e.run(ops::Linear{next, x, v_delayed_.weight});
  delay(step, layer, delayed, next, kDelayedValues);
  if (!v_delayed_.bias.is_null()) e.run(ops::AddBias{delayed, v_delayed_.bias});
  e.run(ops::Copy{v.slice(1, 0, half), project(e, x, v_current_)});
  e.run(ops::Copy{v.slice(1, half, half), delayed});
  return v.split_last(spec_.head_dim);
}

void ConvolvedAttentionMixer::forward(const ForwardStep& step, LayerId layer, Tensor out,
                                      Tensor x) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const auto [q, k] = make_heads(step, layer, x);
  const Tensor v = make_values(step, layer, x);
  e.run(ops::RmsNorm{q, q, Tensor{}, kNormEps});
  e.run(ops::RmsNorm{k, k, Tensor{}, kNormEps});
  e.run(
      ops::MulActivated{k, k, rows_of_vector(key_scale_, n).split_last(1), Activation::kIdentity});
  e.run(ops::Rope{q, step.positions, inverse_frequencies_, spec_.rope.options()});
  e.run(ops::Rope{k, step.positions, inverse_frequencies_, spec_.rope.options()});
  const Tensor mixed = e.scratch({n, spec_.num_heads, spec_.head_dim}, DType::kF32);
  e.run(ops::Attention{mixed,
                       q,
                       k,
                       v,
                       step.batch.key_values(layer),
                       {.scale = spec_.scale, .window = spec_.window}});
  e.run(ops::Linear{out, mixed.reshape({n, spec_.num_heads * spec_.head_dim}), o_.weight});
  if (!o_.bias.is_null()) e.run(ops::AddBias{out, o_.bias});
}

}  // namespace

LayerStateSpec ConvolvedAttentionSpec::state(const CacheTypes& types) const {
  LayerStateSpec layer;
  for (const DType type : {types.keys, types.values}) {
    StateTensor tensor = cached_heads(num_kv_heads, head_dim, type);
    tensor.window = window;
    layer.tensors.push_back(tensor);
  }
  // Inputs of convolutions, the oldest first.
  layer.tensors.push_back({.extent = StateExtent::kFixed, .shape = {channel_taps - 1, channels()}});
  layer.tensors.push_back(
      {.extent = StateExtent::kFixed, .shape = {1, num_kv_heads * head_dim / 2}});
  for (int64_t i = 1; i < head_taps; ++i) {
    layer.tensors.push_back({.extent = StateExtent::kFixed, .shape = {1, channels()}});
  }
  return layer;
}

Status ConvolvedAttentionSpec::has_state(const CacheTypes& types) const {
  MF_RETURN_IF_ERROR(check_cached_heads("keys of a head", head_dim, types.keys));
  return check_cached_heads("values of a head", head_dim, types.values);
}

std::unique_ptr<Mixer> ConvolvedAttentionSpec::take(WeightStore& weights,
                                                    const MixerPlace& place) const {
  return std::make_unique<ConvolvedAttentionMixer>(*this, weights, place);
}

Json ConvolvedAttentionSpec::config_value(std::string_view key) const {
  if (key == "layer_type") return window == 0 ? "hybrid" : "hybrid_sliding";
  if (key == "rotary_dim") return rope.rotary_dim;
  return nullptr;
}

}  // namespace moeflux
