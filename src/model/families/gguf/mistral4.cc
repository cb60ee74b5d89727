// Mistral Small 4 as GGUF files spell it, and Mistral's models whose files say DeepSeek-V2. Where
// the public converter leaves out how much queries grow with their position, it is what the
// published model has.
#include <string_view>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux {
namespace gguf_mistral4 {
namespace {

constexpr int64_t kSoftmax = 1;       // of expert_gating_func
constexpr double kQueryGrowth = 0.1;  // llama_4_scaling_beta

// Queries grow by the length that YaRN stretches, whatever else a file says.
void read_query_scale(GgufKeys& keys, Json& scaling) {
  scaling["llama_4_scaling_beta"] = keys.number_or("attention.temperature_scale", kQueryGrowth);
  if (scaling.contains("original_max_position_embeddings")) {
    keys.expect_int("attention.temperature_length", scaling["original_max_position_embeddings"]);
  }
}

// yarn_log_multiplier is 0.1 * mscale_all_dim. mscale is not stored: it is 1.
void read_rope(GgufKeys& keys, Json& c) {
  c["rope_theta"] = keys.number_or("rope.freq_base", 10000.0);
  Json scaling = read_gguf_rope_scaling(keys);
  if (scaling.is_null() || scaling["type"] != "yarn") {
    keys.fail(ErrorCode::kUnsupported,
              formatted("{}.rope.scaling.type is \"{}\", expected \"yarn\"", keys.architecture(),
                        keys.text_or("rope.scaling.type", "none")));
    return;
  }
  scaling["mscale"] = 1.0;
  scaling["mscale_all_dim"] = keys.number_or("rope.scaling.yarn_log_multiplier", 0.0) / 0.1;
  // llama.cpp multiplies the scale of scores with it as well.
  expect_gguf_number(keys, "rope.scaling.attn_factor", {1.0});
  read_query_scale(keys, scaling);
  c["rope_scaling"] = scaling;
}

}  // namespace
}  // namespace gguf_mistral4

void read_gguf_growing_queries(GgufKeys& keys, Json& c) {
  c["model_type"] = "mistral4";
  read_gguf_latent_widths(keys, c);
  gguf_mistral4::read_rope(keys, c);
  read_gguf_experts(keys, c);
  keys.expect_int("expert_gating_func", gguf_mistral4::kSoftmax);
  c["n_group"] = keys.int_or("expert_group_count", 1);
  c["topk_group"] = keys.int_or("expert_group_used_count", 1);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", false);
  c["routed_scaling_factor"] = read_gguf_weights_scale(keys);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
}

namespace gguf_mistral4 {
extern const GgufArchitecture architecture = {
    .names = {"mistral4"}, .config = read_gguf_growing_queries, .tensors = gguf_latent_names({})};
}

}  // namespace moeflux
