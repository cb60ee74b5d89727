#include "model/mixers/short_conv.h"

#include <string>

#include "base/json.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

class ShortConvMixer : public Mixer {
 public:
  ShortConvMixer(const ShortConvSpec& spec, WeightStore& weights, const MixerPlace& place)
      : channels_(spec.channels) {
    const std::string p = place.layer + "conv.";
    in_ = weights.matrix(p + "in_proj", 3 * channels_, place.hidden_size);
    conv_ = weights.vector(p + "conv.weight", {channels_, spec.taps});
    out_ = weights.matrix(p + "out_proj", place.hidden_size, channels_);
  }

  // in_proj x = b | c | u; out = out_proj(c * conv(b * u)).
  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override {
    Encoder& e = step.encoder;
    ScratchScope scope(e);
    const int64_t n = x.dim(0);
    const Tensor projected = e.scratch({n, 3 * channels_}, DType::kF32);
    const Tensor gated = e.scratch({n, channels_}, DType::kF32);
    const Tensor mixed = e.scratch({n, channels_}, DType::kF32);
    e.run(ops::Linear{projected, x, in_});
    const auto third = [&](int64_t i) { return projected.slice(1, i * channels_, channels_); };
    e.run(ops::MulActivated{gated, third(2), third(0), Activation::kIdentity});
    e.run(
        ops::CausalConv{mixed, gated, conv_, {Activation::kIdentity}, step.batch.states(layer, 0)});
    e.run(ops::MulActivated{mixed, mixed, third(1), Activation::kIdentity});
    e.run(ops::Linear{out, mixed, out_});
  }

 private:
  const int64_t channels_;
  Weight in_;
  Tensor conv_;
  Weight out_;
};

}  // namespace

LayerStateSpec ShortConvSpec::state(const CacheTypes&) const {
  // The last inputs of the convolution, oldest first.
  return {{{.extent = StateExtent::kFixed, .shape = {taps - 1, channels}}}};
}

std::unique_ptr<Mixer> ShortConvSpec::take(WeightStore& weights, const MixerPlace& place) const {
  return std::make_unique<ShortConvMixer>(*this, weights, place);
}

Json ShortConvSpec::config_value(std::string_view key) const {
  return key == "layer_type" ? Json("conv") : Json();
}

}  // namespace moeflux
