// GLM-4.5, 4.5-Air, 4.6 and 4.7 as GGUF files spell them.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_glm4moe {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "glm4_moe";
  read_gguf_attention(keys, c);
  c["use_qk_norm"] = keys.any_block_has("attn_q_norm.weight");
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"glm4moe"},
    .config = config,
    .tensors = {{"post_attention_norm", "post_attention_layernorm"}},
    .written = {{"glm4_moe", "glm4moe"}}};

}  // namespace moeflux::gguf_glm4moe
