// Cohere's Command A+ line as GGUF files spell it: the first, dense layers have positions whatever
// they see, and shared experts count as much as routed ones.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_cohere2moe {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "cohere2_moe";
  read_gguf_attention(keys, c);
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 0});
  c["prefix_dense_sliding_window_pattern"] = 1;
  c["logit_scale"] = keys.require_number("logit_scale");
  read_gguf_experts(keys, c);
  keys.expect_int("expert_gating_func", 2);
  c["expert_selection_fn"] = "sigmoid";
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", false);
  c["num_shared_experts"] = keys.int_or("expert_shared_count", 0);
  keys.expect_int("expert_shared_feed_forward_length", c["moe_intermediate_size"].get<int64_t>() *
                                                           c["num_shared_experts"].get<int64_t>());
  c["shared_expert_combination_strategy"] = "average";
  c["intermediate_size"] = c["moe_intermediate_size"];
  c.erase("moe_intermediate_size");
  c["prefix_dense_intermediate_size"] = keys.require_int("feed_forward_length");
  c["first_k_dense_replace"] = keys.int_or("leading_dense_block_count", 0);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"cohere2moe"}, .config = config, .tensors = {}};

}  // namespace moeflux::gguf_cohere2moe
