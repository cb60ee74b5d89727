// Models with DeepSeek's latent attention as GGUF files spell them: V2, V3, R1, Kimi-K2,
// GLM-4.7-Flash, of which keys alone tell which, softmax scores are V2's and sigmoid scores V3's;
// and V3.2 and GLM-5, whose layers have an index. Files made from Mistral's own format say V2, too.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_deepseek2 {
namespace {

constexpr int64_t kSoftmax = 1;
constexpr int64_t kSigmoid = 2;

// GLM-4.7-Flash has no key of its scores; it is known by its layers and vocabulary, or by the name
// that Ollama first gave it.
bool is_glm_flash(GgufKeys& keys, const Json& c) {
  if (keys.architecture() == "glm4moelite") return true;
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
  c["routed_scaling_factor"] = read_gguf_weights_scale(keys);
}

void config(GgufKeys& keys, Json& c) {
  // Queries grow with their position in Mistral's models alone.
  if (keys.has("attention.temperature_scale")) return read_gguf_growing_queries(keys, c);
  read_gguf_latent_widths(keys, c);
  if (keys.architecture() == "glm4moelite") {  // which has the two pairs the other way round
    const int64_t rope = c["qk_rope_head_dim"];
    c["qk_nope_head_dim"] = keys.require_int("attention.key_length") - rope;
    c["v_head_dim"] = keys.require_int("attention.value_length");
  }
  read_gguf_latent_rope(keys, c);
  read_gguf_experts(keys, c);
  if (keys.architecture() == "deepseek2" || keys.architecture() == "glm4moelite") {
    read_router(keys, c);
  } else {
    c["model_type"] = keys.architecture() == "glm-dsa" ? "glm_moe_dsa" : "deepseek_v32";
    read_gguf_noaux_tc(keys, c);
    read_gguf_index(keys, c);
  }
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"deepseek2", "deepseek32", "glm-dsa", "glm4moelite"},
    .config = config,
    .tensors = gguf_latent_names({}),
    .written = {{"deepseek_v2", "deepseek2"},
                {"deepseek_v3", "deepseek2"},
                {"kimi_k2", "deepseek2"},
                {"glm4_moe_lite", "deepseek2"}}};

}  // namespace moeflux::gguf_deepseek2
