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
#include "model/mixers/attention.h"
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
  float latent_norm_eps = 1e-6f;    // of q_a_layernorm and kv_a_layernorm
  HeadGate gate = HeadGate::kNone;  // g_proj's, through a sigmoid
  /// q_b_proj sees the low-rank query normed | as it was, and holds query | gate per head, a number
  /// for each of its output. Where files have gate_b_proj, that one makes the gates of the query as
  /// it was, and q_b_proj the queries.
  bool gate_in_query = false;
  /// Latents behind their norms are multiplied by the root of hidden_size / rank.
  bool lifts_latents = false;
  bool rope_norm = false;  // of the keys' rotary part
  bool sinks = false;
  bool bias = false;          // of the low-rank query's, the latent's and the output's projections
  bool logarithmic = false;   // queries grow with the logarithm of their position, by head
  bool learned_rope = false;  // inverse frequencies are multiplied by exp(lerope.alpha)
  int64_t window = 0;         // 0: all
  RopeSpec rope;
  /// Heads attend to at most so many tokens, which the layer's index has chosen or, without one,
  /// the last layer's that has one; 0: to all.
  int64_t tokens_read = 0;
  std::optional<KeyIndexSpec> index;
  int32_t keys_of = -1;     // not negative: no latents of its own, but those of that layer
  bool lends_keys = false;  // to such layers

  bool has_keys() const { return keys_of < 0; }
  bool chooses() const { return tokens_read > 0; }
  int64_t latent_dim() const { return kv_lora_rank + rope_dim; }

  std::string_view kind() const override { return "latent_attention"; }
  LayerStateSpec state(const CacheTypes& types) const override;
  Status has_state(const CacheTypes& types) const override;
  int64_t reads_state_of() const override { return keys_of; }
  bool lends() const override { return lends_keys; }
  std::unique_ptr<Mixer> take(WeightStore& weights, const MixerPlace& place) const override;
  Json config_value(std::string_view key) const override;
};

struct LatentAttentionWeights {
  Weight q;    // q_proj, or q_a_proj when there is a low-rank query
  Weight q_b;  // null without one
  Tensor q_norm;
  Weight kv_a;
  Tensor kv_norm;
  Tensor q_bias, kv_bias, o_bias;  // null without them
  /// Up-projections of keys and values. Hugging Face keeps both in kv_b_proj, per head nope_dim
  /// rows of keys and then v_dim rows of values over the latent; MLX splits them into embed_q,
  /// whose rows are the latent's (the keys' transposed), and unembed_out.
  Weight k_up;
  Weight v_up;
  bool k_up_is_transposed = false;
  Weight gate;  // null without one of its own; sees x, or the low-rank query
  Tensor rope_norm;
  Tensor sinks;
  LogScale growth;
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
  /// Makes q of the low-rank query and chooses keys; without one, q is there already.
  void make_queries(const ForwardStep& step, LayerId layer, Tensor q, Tensor low_rank,
                    Tensor x) const;
  void choose(const ForwardStep& step, LayerId layer, Tensor queries_from, Tensor x) const;
  void attend(const ForwardStep& step, LayerId layer, Tensor values, Tensor q, Tensor latent) const;

  const LatentAttentionSpec spec_;
  const LatentAttentionWeights weights_;
};

}  // namespace moeflux
