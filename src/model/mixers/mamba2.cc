#include "model/mixers/mamba2.h"

#include <string>

#include "base/json.h"
#include "base/portable_math.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

// Tensors of the state.
constexpr size_t kMambaConvState = 0;
constexpr size_t kScanState = 1;

struct Mamba2Weights {
  Weight in;  // z | x | B | C | dt
  Weight out;
  Tensor conv;
  Tensor conv_bias;  // null without one
  ScanWeights scan;
  Tensor norm;
};

float log_of_rate(float rate) { return static_cast<float>(portable_log(-rate)); }

Mamba2Weights take_weights(WeightStore& weights, const Mamba2Spec& s, const MixerPlace& place) {
  const std::string p = place.layer + "mamba.";
  const int64_t channels = s.scan.row_width();
  const Shape heads{s.scan.heads};
  Mamba2Weights w;
  w.in = weights.matrix(p + "in_proj", s.inner() + channels + s.scan.heads, place.hidden_size);
  w.out = weights.matrix(p + "out_proj", place.hidden_size, s.inner());
  w.conv = weights.vector(p + "conv1d.weight", {channels, s.conv_taps});
  if (s.conv_bias) w.conv_bias = weights.vector(p + "conv1d.bias", {channels});
  // GGUF stores the rate itself. Its logarithm and the exponential that undoes it lose a rounding.
  w.scan.a_log = weights.has(p + "decay_rate")
                     ? weights.mapped_vector(p + "decay_rate", heads, log_of_rate)
                     : weights.vector(p + "A_log", heads);
  w.scan.dt_bias = weights.vector(p + "dt_bias", heads);
  w.scan.skip = weights.vector(p + "D", heads);
  w.norm = weights.vector(p + "norm.weight", {s.inner()});
  return w;
}

class Mamba2Mixer : public Mixer {
 public:
  Mamba2Mixer(const Mamba2Spec& spec, WeightStore& weights, const MixerPlace& place)
      : spec_(spec),
        weights_(take_weights(weights, spec, place)),
        rms_norm_eps_(place.rms_norm_eps) {}

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  void norm(Encoder& e, Tensor heads) const;

  const Mamba2Spec spec_;
  const Mamba2Weights weights_;
  const float rms_norm_eps_;
};

// Each group by its own mean square, then all by their weights.
void Mamba2Mixer::norm(Encoder& e, Tensor heads) const {
  if (spec_.norm_groups == 1)
    return e.run(ops::RmsNorm{heads, heads, weights_.norm, rms_norm_eps_});
  const Tensor groups = heads.split_last(spec_.inner() / spec_.norm_groups);
  e.run(ops::RmsNorm{groups, groups, {}, rms_norm_eps_});
  Tensor scales = weights_.norm.reshape({1, spec_.inner()});
  scales.shape.set(0, heads.dim(0));  // the same row for every token
  scales.strides[0] = 0;
  e.run(ops::MulActivated{heads, heads, scales, Activation::kIdentity});
}

void Mamba2Mixer::forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const {
  const Mamba2Spec& s = spec_;
  const Mamba2Weights& w = weights_;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const int64_t channels = s.scan.row_width();
  const Tensor projected = e.scratch({n, w.in.rows}, DType::kF32);
  const Tensor mixed = e.scratch({n, channels}, DType::kF32);
  const Tensor heads = e.scratch({n, s.inner()}, DType::kF32);
  e.run(ops::Linear{projected, x, w.in});
  const Tensor gate = projected.slice(1, 0, s.inner());
  const Tensor steps = projected.slice(1, s.inner() + channels, s.scan.heads);
  e.run(ops::CausalConv{mixed,
                        projected.slice(1, s.inner(), channels),
                        w.conv,
                        {Activation::kSilu, w.conv_bias},
                        step.batch.states(layer, kMambaConvState)});
  e.run(ops::SelectiveScan{heads.split_last(s.scan.head_dim), mixed, steps, w.scan,
                           step.batch.states(layer, kScanState), s.scan});
  e.run(ops::MulActivated{heads, heads, gate, Activation::kSilu});
  norm(e, heads);
  e.run(ops::Linear{out, heads, w.out});
}

}  // namespace

LayerStateSpec Mamba2Spec::state(const CacheTypes&) const {
  // The last inputs of the convolution, oldest first, and the scan's matrix of each head.
  return {{{.extent = StateExtent::kFixed, .shape = {conv_taps - 1, scan.row_width()}},
           {.extent = StateExtent::kFixed, .shape = {scan.heads, scan.state_dim, scan.head_dim}}}};
}

std::unique_ptr<Mixer> Mamba2Spec::take(WeightStore& weights, const MixerPlace& place) const {
  return std::make_unique<Mamba2Mixer>(*this, weights, place);
}

Json Mamba2Spec::config_value(std::string_view key) const {
  return key == "layer_type" ? Json("linear_attention") : Json();
}

}  // namespace moeflux
