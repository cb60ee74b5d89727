// The gated short convolution of LFM2: two gates around a causal convolution of a few taps.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "model/mixer.h"

namespace moeflux {

struct ShortConvSpec : MixerSpec {
  int64_t channels = 0;  // the hidden size
  int64_t taps = 0;

  std::string_view kind() const override { return "short_conv"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
