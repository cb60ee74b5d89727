// Gemma 3 (text): norms of (1 + w) before and behind attention and networks, norms of queries and
// keys, windows in five of six layers with a rotary base of their own, scaled embeddings.
#include <cmath>
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::gemma3 {
namespace {

constexpr std::string_view kActivation = "gelu_pytorch_tanh";

// Published configs leave out defaults of transformers' class.
void assume_defaults(Config& c) {
  c.assume("vocab_size", 262208);
  c.assume("num_attention_heads", 8);
  c.assume("num_key_value_heads", 4);
  c.assume("head_dim", 256);
  c.assume("rms_norm_eps", 1e-6);
  c.assume("max_position_embeddings", 131072);
  c.assume("query_pre_attn_scalar", 256);
  c.assume("hidden_activation", kActivation);
}

Result<ModelSpec> read_spec(Config& c) {
  assume_defaults(c);
  ModelSpec spec = read_trunk(c, kActivation);
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  c.expect_string("hidden_activation", kActivation);
  c.expect_bool("use_bidirectional_attention", false);
  spec.logit_soft_cap = static_cast<float>(c.number_or("final_logit_softcapping", 0.0, 0.0, 1e6));
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  spec.norms_hold_one = c.bool_or("norms_hold_one", false);  // GGUF's
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  layer.dense_glu.activation = Activation::kGeluTanh;
  read_dense_network(c, layer);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  attention.qk_norm = QkNorm::kPerHead;
  attention.scale =
      static_cast<float>(1.0 / std::sqrt(c.require_number("query_pre_attn_scalar", 1e-3, 1e6)));
  const int64_t window = read_window(c, 4096);
  c.ignore("_sliding_window_pattern");
  const std::vector<bool> sliding =
      read_sliding_pattern(c, num_layers, c.int_or("sliding_window_pattern", 6, {1, 4096}));
  const RopeByWindow rope = read_rope_by_window(
      c, attention.head_dim,
      {.local_theta_key = "rope_local_base_freq", .theta = 1e6, .local_theta = 1e4});
  spec.layers = layers_by_window(layer, attention, rope, sliding, window);
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.attention_out_norm = "post_attention_layernorm";
  options.names.ffn_norm = "pre_feedforward_layernorm";
  options.names.ffn_out_norm = "post_feedforward_layernorm";
  options.norm_add = spec.norms_hold_one ? 0.0f : 1.0f;
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {{"gemma3", "gemma3_text"}, read_spec, usual_names, create};

}  // namespace moeflux::gemma3
