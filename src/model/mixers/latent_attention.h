// Multi-head latent attention in absorbed form: a cache of kv_lora_rank + rope_dim values a token,
// shared by all heads. The up-projections of keys and values are folded into the query and the
// output per head, so the cache never expands to per-head keys and values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "model/config/rope.h"
#include "model/mixer.h"
#include "model/mixers/key_index.h"
#include "quant/weight.h"

namespace moeflux {

struct LatentAttentionSpec : MixerSpec {
  int64_t num_heads = 0;
  int64_t q_lora_rank = 0;  // 0: queries come straight from q_proj
  int64_t kv_lora_rank = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;
  float scale = 1.0f;
  float latent_norm_eps = 1e-6f;  // of q_a_layernorm and kv_a_layernorm
  bool head_gate = false;  // the output of a head is multiplied by sigmoid(g_proj x), a number each
  RopeSpec rope;
  /// Heads attend to at most so many tokens, which the layer's index has chosen or, without one,
  /// the last layer's that has one; 0: to all. There is a low-rank query then.
  int64_t tokens_read = 0;
  std::optional<KeyIndexSpec> index;

  bool chooses() const { return tokens_read > 0; }
  int64_t latent_dim() const { return kv_lora_rank + rope_dim; }

  std::string_view kind() const override { return "latent_attention"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  Status has_state(const CacheTypes& types) const override;
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

struct LatentAttentionWeights {
  Weight q;    // q_proj, or q_a_proj when there is a low-rank query
  Weight q_b;  // null without one
  Tensor q_norm;
  Weight kv_a;
  Tensor kv_norm;
  /// Up-projections of keys and values. Hugging Face keeps both in kv_b_proj, per head nope_dim
  /// rows of keys and then v_dim rows of values over the latent; MLX splits them into embed_q,
  /// whose rows are the latent's (the keys' transposed), and unembed_out.
  Weight k_up;
  Weight v_up;
  bool k_up_is_transposed = false;
  Weight gate;  // null without one
  Weight o;
  Tensor inverse_frequencies;
  KeyIndexWeights index;
};

class LatentAttentionMixer : public Mixer {
 public:
  LatentAttentionMixer(const LatentAttentionSpec& spec, const LatentAttentionWeights& weights)
      : spec_(spec), weights_(weights) {}

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  const LatentAttentionSpec spec_;
  const LatentAttentionWeights weights_;
};

}  // namespace moeflux
