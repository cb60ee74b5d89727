// What a network is, as plain data: the family reads it from config.json, everything else is built
// from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "state/sequence_state.h"

namespace moeflux {

enum class MixerKind : uint8_t { kAttention, kGatedDelta };

struct RopeSpec {
  double theta = 10000.0;
  int64_t rotary_dim = 0;
  bool interleaved = false;
};

struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0f;
  RopeSpec rope;
};

struct GatedDeltaSpec {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_taps = 0;

  int64_t keys_width() const { return key_heads * key_dim; }
  int64_t values_width() const { return value_heads * value_dim; }
  int64_t conv_channels() const { return 2 * keys_width() + values_width(); }
};

struct MoeSpec {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  int64_t shared_intermediate_size = 0;  // 0: no shared expert
  RouterOptions router;
};

struct LayerSpec {
  MixerKind mixer = MixerKind::kAttention;
  AttentionSpec attention;     // when mixer is kAttention
  GatedDeltaSpec gated_delta;  // when mixer is kGatedDelta
  MoeSpec moe;
};

struct ModelSpec {
  std::string model_type;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  bool tie_word_embeddings = false;
  std::vector<LayerSpec> layers;
  std::vector<std::string> unread_keys;  // of config.json: nobody knows what they mean

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
};

/// What each layer must remember of a sequence.
std::vector<LayerStateSpec> state_specs(const ModelSpec& spec);

/// inverse_frequencies[i] = theta^(-2i / rotary_dim), i below rotary_dim / 2, in f32 as the
/// references store them.
std::vector<float> rope_inverse_frequencies(const RopeSpec& rope);

}  // namespace moeflux
