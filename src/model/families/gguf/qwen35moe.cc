// Qwen3.5, Qwen3.6 and Qwen3-Next as GGUF files spell them: norms already carry their one, the
// decay of the delta rule is stored as its rate. Qwen3.5's converter puts value head g * r + j at
// place j * key_heads + g, so that place p belongs to key head p % key_heads; Qwen3-Next's does
// not.
#include <algorithm>

#include "model/gguf_architecture.h"

namespace moeflux {
namespace {

Json layer_types(GgufKeys& keys) {
  const int64_t interval = std::max<int64_t>(keys.int_or("full_attention_interval", 4), 1);
  std::vector<int64_t> recurrent;
  for (int64_t i = 1; i <= keys.num_layers(); ++i) recurrent.push_back(i % interval != 0 ? 1 : 0);
  if (keys.has("attention.recurrent_layers")) {
    recurrent = keys.of_blocks("attention.recurrent_layers");
  }
  Json types = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    types.push_back(recurrent[static_cast<size_t>(i)] != 0 ? "linear_attention" : "full_attention");
  }
  return types;
}

void config(GgufKeys& keys, Json& c) {
  const bool is_next = keys.architecture() == "qwen3next";
  c["model_type"] = is_next ? "qwen3_next" : "qwen3_5_moe_text";
  read_gguf_attention(keys, c);
  c["layer_types"] = layer_types(keys);
  const int64_t value_heads = keys.require_int("ssm.time_step_rank");
  c["linear_num_key_heads"] = keys.require_int("ssm.group_count");
  c["linear_num_value_heads"] = value_heads;
  c["linear_key_head_dim"] = keys.require_int("ssm.state_size");
  c["linear_value_head_dim"] =
      keys.require_int("ssm.inner_size") / std::max<int64_t>(value_heads, 1);
  c["linear_conv_kernel_dim"] = keys.require_int("ssm.conv_kernel");
  if (!is_next) c["linear_tiled_value_heads"] = true;
  read_gguf_experts(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  keys.ignore("feed_forward_length");  // of dense layers: there are none
  c["shared_expert_intermediate_size"] = keys.require_int("expert_shared_feed_forward_length");
}

}  // namespace

extern const GgufArchitecture qwen35moe_gguf;
const GgufArchitecture qwen35moe_gguf = {
    .names = {"qwen35moe", "qwen3next"},
    .config = config,
    .tensors = {{"post_attention_norm", "post_attention_layernorm"},
                {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                // Layers of attention may hold q, k and v in a tensor of this name.
                {"attn_qkv", "linear_attn.in_proj_qkv", "attn_output.weight"},
                {"attn_gate", "linear_attn.in_proj_z"},
                {"ssm_in", "linear_attn.in_proj_qkvz"},
                {"ssm_ba", "linear_attn.in_proj_ba"},
                {"ssm_alpha", "linear_attn.in_proj_a"},
                {"ssm_beta", "linear_attn.in_proj_b"},
                {"ssm_conv1d", "linear_attn.conv1d"},
                {"ssm_a", "linear_attn.decay_rate"},
                {"ssm_dt.bias", "linear_attn.dt_bias"},
                {"ssm_norm", "linear_attn.norm"},
                {"ssm_out", "linear_attn.out_proj"}},
    .written = {{"qwen3_5_moe", "qwen35moe"},
                {"qwen3_5_moe_text", "qwen35moe"},
                {"qwen3_next", "qwen3next"}}};

}  // namespace moeflux
