// Trinity as GGUF files spell it. Embeddings are scaled and every fourth layer sees all, which no
// key says.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_afmoe {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "afmoe";
  c["mup_enabled"] = true;
  read_gguf_attention(keys, c);
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 3});
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["route_scale"] = c["routed_scaling_factor"];
  c["route_norm"] = keys.bool_or("expert_weights_norm", true);
  for (const char* said : {"routed_scaling_factor", "norm_topk_prob"}) c.erase(said);
  c["num_shared_experts"] = keys.int_or("expert_shared_count", 0);
  c["intermediate_size"] = keys.require_int("feed_forward_length");
  c["num_dense_layers"] = keys.int_or("leading_dense_block_count", 0);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"afmoe"},
    .config = config,
    .tensors = {{"attn_gate", "self_attn.g_proj"},
                {"ffn_norm", "pre_mlp_layernorm"},
                {"post_attention_norm", "post_attention_layernorm"},
                {"post_ffw_norm", "post_mlp_layernorm"}},
    .written = {{"afmoe", "afmoe", /*has_pattern=*/true}}};

}  // namespace moeflux::gguf_afmoe
