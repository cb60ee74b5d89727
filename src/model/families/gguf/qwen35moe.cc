// Qwen3.5, Qwen3.6 and Qwen3-Next as GGUF files spell them: norms already carry their one, the
// decay of the delta rule is stored as its rate. Qwen3.5's converter puts value head g * r + j at
// place j * key_heads + g, so that place p belongs to key head p % key_heads; Qwen3-Next's does
// not.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_qwen35moe {
namespace {

void config(GgufKeys& keys, Json& c) {
  const bool is_next = keys.architecture() == "qwen3next";
  c["model_type"] = is_next ? "qwen3_next" : "qwen3_5_moe_text";
  read_gguf_attention(keys, c);
  read_gguf_gated_delta(keys, c);
  // Ollama's files say whether they have Qwen3.5's order.
  if (keys.bool_or("ssm.v_head_reordered", !is_next)) c["linear_tiled_value_heads"] = true;
  if (keys.architecture() == "qwen35") {
    c["model_type"] = "qwen3_5_text";
    read_gguf_dense_network(keys, c);
    c.erase("mlp_bias");
    return;
  }
  read_gguf_experts(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  keys.ignore("feed_forward_length");  // of dense layers: there are none
  c["shared_expert_intermediate_size"] = keys.require_int("expert_shared_feed_forward_length");
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"qwen35moe", "qwen35", "qwen3next"},
    .config = config,
    .tensors = gguf_gated_delta_names({{"post_attention_norm", "post_attention_layernorm"},
                                       {"ssm_in", "linear_attn.in_proj_qkvz"},
                                       {"ssm_ba", "linear_attn.in_proj_ba"}}),
    .written = {{"qwen3_5_moe", "qwen35moe"},
                {"qwen3_5_moe_text", "qwen35moe"},
                {"qwen3_5", "qwen35"},
                {"qwen3_5_text", "qwen35"},
                {"qwen3_next", "qwen3next"}}};

}  // namespace moeflux::gguf_qwen35moe
