// Kimi-Linear as GGUF files spell it: blocks without key-value heads have the delta rule, whose
// decay is stored as its rate; the others have latent attention, and no position counts.
#include "model/gguf_architecture.h"

namespace moeflux {
namespace {

void read_delta(GgufKeys& keys, Json& c) {
  c["linear_num_heads"] = keys.require_int("attention.head_count");
  c["linear_head_dim"] = keys.require_int("kda.head_dim");
  c["linear_conv_kernel_dim"] = keys.require_int("ssm.conv_kernel");
  const std::vector<int64_t> kv_heads = keys.of_blocks("attention.head_count_kv");
  Json types = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    const bool is_delta = kv_heads[static_cast<size_t>(i)] == 0;
    types.push_back(is_delta ? "linear_attention" : "full_attention");
  }
  c["layer_types"] = types;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "kimi_linear";
  read_gguf_latent_widths(keys, c);
  keys.ignore("rope.freq_base");  // nothing turns
  read_delta(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  c["num_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture kimi_linear_gguf;
const GgufArchitecture kimi_linear_gguf = {
    .names = {"kimi-linear"},
    .config = config,
    .tensors = {{"attn_q_a", "self_attn.q_a_proj"},
                {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                {"attn_q_b", "self_attn.q_b_proj"},
                {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                {"attn_k_b", "self_attn.embed_q"},
                {"attn_v_b", "self_attn.unembed_out"},
                {"attn_kv_b", "self_attn.kv_b_proj", "attn_k_b.weight"},
                {"attn_kv_b", ""},
                {"ssm_conv1d_q", "self_attn.q_conv1d"},
                {"ssm_conv1d_k", "self_attn.k_conv1d"},
                {"ssm_conv1d_v", "self_attn.v_conv1d"},
                {"ssm_f_a", "self_attn.f_a_proj"},
                {"ssm_f_b", "self_attn.f_b_proj"},
                {"ssm_g_a", "self_attn.g_a_proj"},
                {"ssm_g_b", "self_attn.g_b_proj"},
                {"ssm_beta", "self_attn.b_proj"},
                {"ssm_a", "self_attn.decay_rate"},
                {"ssm_dt.bias", "self_attn.dt_bias"},
                {"ssm_norm", "self_attn.o_norm"}}};

}  // namespace moeflux
