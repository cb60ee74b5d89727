// Attention over keys and values: grouped queries, q/k norms, partial rope, windows, sinks, output
// gates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/activation.h"
#include "model/config/rope.h"
#include "model/mixer.h"
#include "model/mixers/key_index.h"

namespace moeflux {

enum class QkNorm : uint8_t {
  kNone,
  kPerHead,  // one weight [head_dim] for every head
  kWhole,    // over the concatenated heads, weights [heads * head_dim]
  kPlain,    // each head without a weight, behind the rotary positions
};

/// The granularity of g_proj's output: the layer's output is multiplied by its activation.
enum class HeadGate : uint8_t {
  kNone,
  kPerHead,     // one number for each head
  kPerElement,  // one for each number of a head's output
};

struct AttentionSpec : MixerSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  float scale = 1.0f;
  int64_t window = 0;      // 0: all
  bool chunked = false;    // the window begins at its multiples
  QueryScale query_scale;  // multiplies queries by their position
  RopeSpec rope;           // of no dimension: positions do not count
  QkNorm qk_norm = QkNorm::kNone;
  bool qkv_bias = false;
  bool o_bias = false;
  /// q_proj holds query | gate per head; the output is multiplied by sigmoid(gate).
  bool output_gate = false;
  HeadGate gate = HeadGate::kNone;
  Activation gate_activation = Activation::kSigmoid;
  bool gate_bias = false;  // "gate_bias": a number for each head, whatever the gate's width
  bool out_norm = false;   // RMS norm without weight on each head's output, before its gate
  bool v_norm = false;     // RMS norm without weight on each value head
  bool v_is_k = false;     // no v_proj: values are the keys before norm and rope
  bool sinks = false;
  /// Not negative: no keys and values of its own, but those of that layer, which lends them.
  int32_t keys_of = -1;
  float value_scale = 1.0f;  // multiplies the values
  /// Chooses the keys that heads attend to, each group for as many of them; nullopt: all keys.
  std::optional<KeyIndexSpec> index;

  std::string_view kind() const override { return "attention"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  Status has_state(const CacheTypes& types) const override;
  int64_t reads_state_of() const override { return keys_of; }
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

}  // namespace moeflux
