// Kimi delta attention: three convolutions, a delta rule with a decay for each channel of a key, a
// norm with a sigmoid gate.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "model/mixer.h"

namespace moeflux {

struct KdaSpec : MixerSpec {
  int64_t heads = 0;
  int64_t head_dim = 0;  // of queries, keys and values
  int64_t conv_taps = 0;
  float decay_bound = 0.0f;  // of a decay's logarithm; 0: none
  /// Decays and gates come through head_dim numbers: f_a_proj, f_b_proj, g_a_proj and g_b_proj in
  /// place of f_proj and g_proj.
  bool low_rank = false;
  bool whole_gate = false;    // the gate is g_proj nevertheless
  int64_t stored_decays = 0;  // numbers of A_log, of which the first `heads` count; 0: heads

  int64_t width() const { return heads * head_dim; }
  bool gate_is_low_rank() const { return low_rank && !whole_gate; }

  std::string_view kind() const override { return "kda"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
