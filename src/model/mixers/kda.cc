#include "model/mixers/kda.h"

#include <array>
#include <cmath>
#include <string>

#include "base/json.h"
#include "base/portable_math.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

// Tensors of the state: the past of each convolution, then the delta rule's.
constexpr size_t kInputs = 3;  // q, k and v
constexpr size_t kKdaState = kInputs;

/// One matrix, or two with head_dim numbers between them.
struct Projection {
  Weight first;
  Weight second;  // null where there is one
};

struct KdaWeights {
  std::array<Weight, kInputs> inputs;
  std::array<Tensor, kInputs> convs;
  Projection decay;
  Projection gate;
  Weight beta;
  Weight out;
  Tensor a_log;
  Tensor dt_bias;
  Tensor norm;
};

/// Files may have more than one for each head, of which the first count.
int64_t stored_decays(const WeightStore& weights, const std::string& name, const KdaSpec& s) {
  const TensorEntry* stored = weights.find(name);
  const bool is_exact = stored != nullptr && stored->shape.num_elements() == s.heads;
  return s.stored_decays > 0 && !is_exact ? s.stored_decays : s.heads;
}

float log_of_size(float rate) { return static_cast<float>(portable_log(std::abs(rate))); }

KdaWeights take_weights(WeightStore& weights, const KdaSpec& s, const MixerPlace& place) {
  const std::string p = place.layer + "self_attn.";
  const int64_t hidden_size = place.hidden_size;
  const auto take_projection = [&](const std::string& name, bool low_rank) {
    if (!low_rank) return Projection{weights.matrix(p + name + "_proj", s.width(), hidden_size)};
    return Projection{weights.matrix(p + name + "_a_proj", s.head_dim, hidden_size),
                      weights.matrix(p + name + "_b_proj", s.width(), s.head_dim)};
  };
  constexpr std::array<const char*, kInputs> kInputNames = {"q", "k", "v"};
  KdaWeights w;
  for (size_t i = 0; i < kInputs; ++i) {
    const std::string name = p + kInputNames[i];
    w.inputs[i] = weights.matrix(name + "_proj", s.width(), hidden_size);
    w.convs[i] = weights.vector(name + "_conv1d.weight", {s.width(), s.conv_taps});
  }
  w.decay = take_projection("f", s.low_rank);
  w.gate = take_projection("g", s.gate_is_low_rank());
  w.beta = weights.matrix(p + "b_proj", s.heads, hidden_size);
  w.out = weights.matrix(p + "o_proj", hidden_size, s.width());
  // GGUF stores the rate itself, Kimi-Linear's below zero and Ling's above. Its logarithm and the
  // exponential that undoes it lose a rounding.
  w.a_log = weights.has(p + "decay_rate")
                ? weights.mapped_vector(p + "decay_rate", {s.heads}, log_of_size)
                : weights.vector(p + "A_log", {stored_decays(weights, p + "A_log", s)});
  w.dt_bias = weights.vector(p + "dt_bias", {s.width()});
  w.norm = weights.vector(p + "o_norm.weight", {s.head_dim});
  return w;
}

class KdaMixer : public Mixer {
 public:
  KdaMixer(const KdaSpec& spec, WeightStore& weights, const MixerPlace& place)
      : spec_(spec),
        weights_(take_weights(weights, spec, place)),
        rms_norm_eps_(place.rms_norm_eps) {}

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  const KdaSpec spec_;
  const KdaWeights weights_;
  const float rms_norm_eps_;
};

void KdaMixer::forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const {
  const KdaSpec& s = spec_;
  const KdaWeights& w = weights_;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const auto scratch = [&](int64_t cols) { return e.scratch({n, cols}, DType::kF32); };
  std::array<Tensor, kInputs> inputs;
  for (Tensor& input : inputs) input = scratch(s.width());
  const Tensor decay = scratch(s.width());
  const Tensor gate = scratch(s.width());
  const Tensor beta = scratch(s.heads);
  const Tensor first_decay = s.low_rank ? scratch(s.head_dim) : decay;
  const Tensor first_gate = s.gate_is_low_rank() ? scratch(s.head_dim) : gate;
  // Beside each other, as they share their x.
  for (size_t i = 0; i < kInputs; ++i) e.run(ops::Linear{inputs[i], x, w.inputs[i]});
  e.run(ops::Linear{first_decay, x, w.decay.first});
  e.run(ops::Linear{first_gate, x, w.gate.first});
  e.run(ops::Linear{beta, x, w.beta});
  if (s.low_rank) e.run(ops::Linear{decay, first_decay, w.decay.second});
  if (s.gate_is_low_rank()) e.run(ops::Linear{gate, first_gate, w.gate.second});
  const Tensor mixed = scratch(kInputs * s.width());
  for (size_t i = 0; i < kInputs; ++i) {
    e.run(ops::CausalConv{mixed.slice(1, static_cast<int64_t>(i) * s.width(), s.width()),
                          inputs[i],
                          w.convs[i],
                          {},
                          step.batch.states(layer, i)});
  }
  const Tensor heads = scratch(s.width());
  const Tensor per_head = heads.split_last(s.head_dim);
  GatedDeltaOptions options{s.heads, s.heads, s.head_dim, s.head_dim};
  options.row_decay = true;
  options.decay_bound = s.decay_bound;
  e.run(ops::GatedDelta{per_head, mixed, decay, beta, w.a_log.slice(0, 0, s.heads), w.dt_bias,
                        step.batch.states(layer, kKdaState), options});
  e.run(ops::RmsNorm{per_head, per_head, w.norm, rms_norm_eps_});
  e.run(ops::MulActivated{per_head, per_head, gate.split_last(s.head_dim), Activation::kSigmoid});
  e.run(ops::Linear{out, heads, w.out});
}

}  // namespace

LayerStateSpec KdaSpec::state(const CacheTypes&) const {
  // The last inputs of each convolution, oldest first, and the delta rule's matrix of each head.
  LayerStateSpec state;
  for (size_t i = 0; i < kInputs; ++i) {
    state.tensors.push_back({.extent = StateExtent::kFixed, .shape = {conv_taps - 1, width()}});
  }
  state.tensors.push_back({.extent = StateExtent::kFixed, .shape = {heads, head_dim, head_dim}});
  return state;
}

std::unique_ptr<Mixer> KdaSpec::take(WeightStore& weights, const MixerPlace& place) const {
  return std::make_unique<KdaMixer>(*this, weights, place);
}

Json KdaSpec::config_value(std::string_view key) const {
  return key == "layer_type" ? Json("linear_attention") : Json();
}

}  // namespace moeflux
