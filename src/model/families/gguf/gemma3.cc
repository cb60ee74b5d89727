// Gemma 3 as GGUF files spell it: norms already carry their one, and the scale of scores follows
// from the number of layers.
#include <algorithm>

#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_gemma3 {
namespace {

constexpr int64_t kLayersOf27B = 62;

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "gemma3_text";
  read_gguf_attention(keys, c);
  read_gguf_dense_network(keys, c);
  c["norms_hold_one"] = true;
  const int64_t head_dim = c["head_dim"];
  const int64_t heads = c["num_attention_heads"];
  // llama.cpp knows the largest model, whose scale is of the hidden size divided by heads.
  c["query_pre_attn_scalar"] =
      keys.num_layers() == kLayersOf27B
          ? keys.require_int("embedding_length") / std::max<int64_t>(heads, 1)
          : head_dim;
  c["sliding_window"] = keys.int_or("attention.sliding_window", 0);
  read_gguf_layer_types(keys, c, {.interval = 6, .full_at = 5});
  c["rope_local_base_freq"] = keys.number_or("rope.freq_base_swa", 10000.0);
  c["final_logit_softcapping"] = keys.number_or("final_logit_softcapping", 0.0);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"gemma3"},
    .config = config,
    .tensors = {{"post_attention_norm", "post_attention_layernorm"},
                {"ffn_norm", "pre_feedforward_layernorm"},
                {"post_ffw_norm", "post_feedforward_layernorm"}}};

}  // namespace moeflux::gguf_gemma3
