// Compressed convolutional attention (Figliolia et al. 2025): queries and keys pass a convolution
// of each channel and one of each head, beside which their mean stays; half of the values are those
// of the token before. Heads are normed to one length, keys are scaled.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "model/config/rope.h"
#include "model/mixer.h"

namespace moeflux {

struct ConvolvedAttentionSpec : MixerSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0f;
  int64_t window = 0;        // 0: all
  int64_t channel_taps = 0;  // of the convolution of each channel
  int64_t head_taps = 0;     // of that of each head
  bool bias = false;         // of all projections
  RopeSpec rope;

  /// Queries and keys of all heads.
  int64_t channels() const { return (num_heads + num_kv_heads) * head_dim; }

  std::string_view kind() const override { return "convolved_attention"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  Status has_state(const CacheTypes& types) const override;
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
