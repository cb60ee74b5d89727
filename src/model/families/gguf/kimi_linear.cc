// Kimi-Linear and Ling-3.0 as GGUF files spell them: blocks without key-value heads have the delta
// rule, whose decay is stored as its rate; the others have latent attention. Decays and gates of
// Kimi-Linear have two matrices each, those of Ling one.
#include <algorithm>

#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_kimi_linear {
namespace {

void read_delta(GgufKeys& keys, Json& c) {
  c["linear_num_heads"] = keys.require_int("attention.head_count");
  c["linear_head_dim"] = keys.require_int("kda.head_dim");
  c["linear_conv_kernel_dim"] = keys.require_int("ssm.conv_kernel");
  read_gguf_hybrid_types(keys, c, "linear_attention");
}

void read_ling(GgufKeys& keys, Json& c) {
  c["model_type"] = "bailing_hybrid";
  c["rope_theta"] = keys.number_or("rope.freq_base", 10000.0);
  c["short_conv_kernel_size"] = c["linear_conv_kernel_dim"];
  c["layer_group_size"] = std::max<int64_t>(keys.num_layers(), 1);  // layer_types says more
  c["kda_safe_gate"] = keys.bool_or("kda.safe_gate", true);
  c["kda_lower_bound"] = keys.require_number("kda.gate_lower_bound");
  if (keys.has("expert_shared_feed_forward_length")) {
    c["moe_shared_expert_intermediate_size"] =
        keys.require_int("expert_shared_feed_forward_length");
  }
  read_gguf_limits(keys, "swiglu_clamp_exp", c, "expert_swiglu_limit_list");
  read_gguf_limits(keys, "swiglu_clamp_shexp", c, "share_expert_swiglu_limit_list");
}

void config(GgufKeys& keys, Json& c) {
  read_gguf_latent_widths(keys, c);
  read_delta(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  if (keys.architecture() == "bailingmoe3") {
    read_ling(keys, c);
  } else {
    c["model_type"] = "kimi_linear";
    keys.ignore("rope.freq_base");  // nothing turns
  }
  c["num_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"kimi-linear", "bailingmoe3"},
    .config = config,
    .tensors =
        gguf_latent_names(gguf_kda_names({{"attn_gate", "self_attn.g_proj"},
                                          {"ssm_f_a", "self_attn.f_proj", "ssm_f_b.weight"},
                                          {"ssm_g_a", "self_attn.g_proj", "ssm_g_b.weight"}}))};

}  // namespace moeflux::gguf_kimi_linear
