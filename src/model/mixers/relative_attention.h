// Attention without rotary positions: scores get a bias by how far back a key is, which each query
// makes of trained profiles. Keys and values pass short convolutions; they may be made of other
// inputs than queries are: x is then [3, n, hidden].
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "model/config/rope.h"
#include "model/mixer.h"

namespace moeflux {

struct RelativeAttentionSpec : MixerSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0f;
  int64_t window = 0;        // 0: all
  int64_t num_profiles = 0;  // that a head mixes
  int64_t extent = 0;        // distances that a profile has a number for
  int64_t conv_taps = 0;     // of keys and of values
  QueryScale query_scale;    // multiplies queries and biases by the query's position
  /// Not 0: Inkling-2's. Heads of queries, those of keys and a head's shares of profiles are not
  /// normed but kept from being longer, values are normed. Convolutions are divided by the root of
  /// the number of their terms, tokens have sinks and results gates of their own.
  float longest_head = 0.0f;
  float longest_shares = 0.0f;
  bool token_taps = false;  // each kv head of a token adds to the convolutions' taps

  bool clips() const { return longest_head > 0.0f; }

  std::string_view kind() const override { return "relative_attention"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  Status has_state(const CacheTypes& types) const override;
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
