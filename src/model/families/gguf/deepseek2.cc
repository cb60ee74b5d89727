// Models with DeepSeek's latent attention as GGUF files spell them: V2, V3, R1, Kimi-K2,
// GLM-4.7-Flash. Keys alone tell which: softmax scores are V2's, sigmoid scores V3's.
#include "model/gguf_architecture.h"

namespace moeflux {
namespace {

constexpr int64_t kSoftmax = 1;
constexpr int64_t kSigmoid = 2;

// GLM-4.7-Flash has no key of its scores; it is known by its layers and vocabulary.
bool is_glm_flash(GgufKeys& keys, const Json& c) {
  const int64_t blocks = keys.num_blocks();
  return (blocks == 47 || blocks == 48) && c["vocab_size"] == 154880;
}

void read_router(GgufKeys& keys, Json& c) {
  const int64_t score =
      keys.int_or("expert_gating_func", is_glm_flash(keys, c) ? kSigmoid : kSoftmax);
  if (score == kSigmoid) {
    c["model_type"] = "deepseek_v3";
    read_gguf_noaux_tc(keys, c);
    return;
  }
  keys.expect_int("expert_gating_func", kSoftmax);
  c["model_type"] = "deepseek_v2";
  c["scoring_func"] = "softmax";
  const int64_t groups = keys.int_or("expert_group_count", 1);
  c["topk_method"] = groups > 1 ? "group_limited_greedy" : "greedy";
  c["n_group"] = groups;
  c["topk_group"] = keys.int_or("expert_group_used_count", 1);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", false);
  c["routed_scaling_factor"] = keys.number_or("expert_weights_scale", 1.0);
}

// yarn_log_multiplier is 0.1 * mscale_all_dim. mscale is not stored: the factor of cos and sin is
// 1, as where both are equal.
void read_rope(GgufKeys& keys, Json& c) {
  c["rope_theta"] = keys.number_or("rope.freq_base", 10000.0);
  Json scaling = read_gguf_rope_scaling(keys);
  if (scaling.is_null()) return;
  const double all_dim = keys.number_or("rope.scaling.yarn_log_multiplier", 0.0) / 0.1;
  scaling["mscale"] = all_dim;
  scaling["mscale_all_dim"] = all_dim;
  c["rope_scaling"] = scaling;
}

void config(GgufKeys& keys, Json& c) {
  read_gguf_latent_widths(keys, c);
  read_rope(keys, c);
  read_gguf_experts(keys, c);
  read_router(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture deepseek2_gguf;
const GgufArchitecture deepseek2_gguf = {
    .names = {"deepseek2"},
    .config = config,
    .tensors = {{"attn_q_a", "self_attn.q_a_proj"},
                {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                {"attn_q_b", "self_attn.q_b_proj"},
                {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                {"attn_k_b", "self_attn.embed_q"},  // each head's keys transposed already
                {"attn_v_b", "self_attn.unembed_out"},
                {"attn_kv_b", "self_attn.kv_b_proj", "attn_k_b.weight"},
                {"attn_kv_b", ""}},
    .written = {{"deepseek_v2", "deepseek2"},
                {"deepseek_v3", "deepseek2"},
                {"kimi_k2", "deepseek2"},
                {"glm4_moe_lite", "deepseek2"}}};

}  // namespace moeflux
