// Gated DeltaNet: a causal convolution over q, k and v, the gated delta rule, a gated norm.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/activation.h"
#include "model/mixer.h"

namespace moeflux {

struct GatedDeltaSpec : MixerSpec {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_taps = 0;
  bool one_projection = false;          // in_proj: q | k | v | z | b | a
  bool grouped_projections = false;     // in_proj_qkvz and in_proj_ba, grouped by key head
  Activation gate = Activation::kSilu;  // of the output's factor
  bool tiled_value_heads = false;       // value head p belongs to key head p % key_heads

  int64_t keys_width() const { return key_heads * key_dim; }
  int64_t values_width() const { return value_heads * value_dim; }
  int64_t conv_channels() const { return 2 * keys_width() + values_width(); }

  std::string_view kind() const override { return "gated_delta"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
