// A network as plain data: the family reads it from config.json, everything else is built from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "model/rope.h"
#include "state/sequence_state.h"

namespace moeflux {

enum class MixerKind : uint8_t { kAttention, kLatentAttention, kGatedDelta };

enum class QkNorm : uint8_t {
  kNone,
  kPerHead,  // one weight [head_dim] for every head
  kWhole,    // over the concatenated heads, weights [heads * head_dim]
};

struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  float scale = 1.0f;
  int64_t window = 0;  // 0: all
  RopeSpec rope;
  QkNorm qk_norm = QkNorm::kNone;
  bool qkv_bias = false;
  bool o_bias = false;
  bool output_gate =
      false;  // q_proj holds query | gate per head; the output is multiplied by sigmoid(gate)
  bool v_norm = false;  // RMS norm without weight on each value head
  bool v_is_k = false;  // no v_proj: values are the keys before norm and rope
  bool sinks = false;
  float value_scale = 1.0f;  // multiplies the values
};

/// Multi-head latent attention.
struct LatentAttentionSpec {
  int64_t num_heads = 0;
  int64_t q_lora_rank = 0;  // 0: queries come straight from q_proj
  int64_t kv_lora_rank = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;
  float scale = 1.0f;
  float latent_norm_eps = 1e-6f;  // of q_a_layernorm and kv_a_layernorm
  RopeSpec rope;

  int64_t latent_dim() const { return kv_lora_rank + rope_dim; }
};

struct GatedDeltaSpec {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_taps = 0;
  bool grouped_projections = false;  // in_proj_qkvz and in_proj_ba, grouped by key head

  int64_t keys_width() const { return key_heads * key_dim; }
  int64_t values_width() const { return value_heads * value_dim; }
  int64_t conv_channels() const { return 2 * keys_width() + values_width(); }
};

struct MoeSpec {
  int64_t num_experts = 0;  // 0: the layer has no routed experts
  int64_t experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  int64_t shared_intermediate_size = 0;  // 0: no shared expert
  bool shared_gate = false;  // the shared expert is multiplied by sigmoid(shared_expert_gate x)
  bool correction_bias = false;
  bool router_bias = false;
  bool expert_bias = false;
  RouterOptions router;
  GluOptions glu;
};

struct LayerSpec {
  MixerKind mixer = MixerKind::kAttention;
  AttentionSpec attention;     // when mixer is kAttention
  LatentAttentionSpec latent;  // when mixer is kLatentAttention
  GatedDeltaSpec gated_delta;  // when mixer is kGatedDelta
  MoeSpec moe;
  int64_t dense_intermediate_size = 0;  // 0: no dense feed-forward network
  GluOptions dense_glu;
};

struct ModelSpec {
  std::string model_type;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  bool tie_word_embeddings = false;
  float logit_soft_cap = 0.0f;  // 0: none
  std::vector<LayerSpec> layers;
  std::vector<std::string> unread_keys;  // of config.json: nobody knows what they mean

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
};

/// State that each layer keeps for a sequence.
std::vector<LayerStateSpec> state_specs(const ModelSpec& spec);

}  // namespace moeflux
