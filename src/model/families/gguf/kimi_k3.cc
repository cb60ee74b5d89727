// Kimi-K3 as GGUF files spell it: blocks without key-value heads have the delta rule, and the two
// factors of what scores earlier states are one vector.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_kimi_k3 {
namespace {

void read_delta(GgufKeys& keys, Json& c) {
  const std::vector<int64_t> kv_heads = keys.of_blocks("attention.head_count_kv");
  Json linear = Json::array();
  Json full = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    (kv_heads[static_cast<size_t>(i)] == 0 ? linear : full).push_back(i + 1);
  }
  c["linear_attn_config"] = {{"num_heads", keys.require_int("attention.head_count")},
                             {"head_dim", keys.require_int("kda.head_dim")},
                             {"short_conv_kernel_size", keys.require_int("ssm.conv_kernel")},
                             {"gate_lower_bound", keys.require_number("kda.gate_lower_bound")},
                             {"use_full_rank_gate", true},
                             {"kda_layers", linear},
                             {"full_attn_layers", full}};
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "kimi_k3";
  c["hidden_act"] = "situ";
  read_gguf_latent_widths(keys, c);
  read_delta(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  c["num_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
  keys.ignore("rope.freq_base");  // nothing turns
  c["activation_situ_beta"] = keys.require_number("activation.situ_beta");
  c["activation_situ_linear_beta"] = keys.require_number("activation.situ_linear_beta");
  c["routed_expert_hidden_size"] = keys.require_int("expert_latent_length");
  c["latent_moe_use_norm"] = keys.any_block_has("ffn_routed_norm.weight");
  c["mla_use_output_gate"] = keys.any_block_has("attn_gate.weight");
  const int64_t blocks = keys.int_or("attn_res.block_size", 0);
  if (blocks > 0) c["attn_res_block_size"] = blocks;
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"kimi-k3"},
    .config = config,
    .tensors = gguf_latent_names(gguf_kda_names({{"attn_gate", "self_attn.g_proj"},
                                                 {"attn_res_score", "self_attention_res_score"},
                                                 {"ffn_res_score", "mlp_res_score"},
                                                 {"output_res_score", "output_attn_res_score"},
                                                 {"ffn_routed_down", "mlp.routed_expert_down_proj"},
                                                 {"ffn_routed_up", "mlp.routed_expert_up_proj"},
                                                 {"ffn_routed_norm", "mlp.routed_expert_norm"},
                                                 {"ssm_g", "self_attn.g_proj"}}))};

}  // namespace moeflux::gguf_kimi_k3
