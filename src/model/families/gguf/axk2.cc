// A.X-K2 as GGUF files spell it: DeepSeek-V3.2's, with gates of norms, and the gate of what
// attention gives apart from the queries, with which published checkpoints have it in one matrix.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_axk2 {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "axk2";
  read_gguf_latent_widths(keys, c);
  read_gguf_latent_rope(keys, c);
  read_gguf_index(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
  c["gated_norm_rank"] = keys.require_int("gated_norm_rank");
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"axk2"},
    .config = config,
    .tensors =
        gguf_latent_names({{"attn_norm", "input_layernorm.norm"},
                           {"attn_norm_gate_a", "input_layernorm.W_down"},
                           {"attn_norm_gate_b", "input_layernorm.W_up"},
                           // Dense blocks have no gate there.
                           {"ffn_norm", "post_attention_layernorm", "ffn_norm_gate_a.weight"},
                           {"ffn_norm", "post_attention_layernorm.norm"},
                           {"ffn_norm_gate_a", "post_attention_layernorm.W_down"},
                           {"ffn_norm_gate_b", "post_attention_layernorm.W_up"},
                           {"attn_gate", "self_attn.gate_b_proj"}})};

}  // namespace moeflux::gguf_axk2
