// Qwen3.5 and Qwen3.6 mixture-of-experts models, and Qwen3-Next: three gated DeltaNet layers to one
// gated attention layer, softmax router with renormalised top-k, one gated shared expert. The
// dense models of Qwen3.5 are the same without experts. Text only.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"
#include "model/mixers/gated_delta.h"

namespace moeflux {
namespace qwen3_5_moe {
namespace {

constexpr std::string_view kFullAttention = "full_attention";

bool is_dense(std::string_view model_type) {
  return model_type == "qwen3_5" || model_type == "qwen3_5_text";
}

void read_network_of_experts(Config& c, LayerSpec& layer) {
  layer.moe = read_experts(c);
  layer.moe.shared_intermediate_size = c.require_int("shared_expert_intermediate_size");
  layer.moe.shared_gate = true;
  c.expect_bool("norm_topk_prob", true);
  c.expect_number("decoder_sparse_step", 1);
  if (!c.ints_or("mlp_only_layers", {}).empty()) {
    c.fail(ErrorCode::kUnsupported, "mlp_only_layers is not empty: dense layers in this family");
  }
  c.ignore("intermediate_size");  // of those dense layers
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  const int64_t num_layers = read_num_layers(c);
  const bool is_next = c.model_type() == "qwen3_next";
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.qk_norm = QkNorm::kPerHead;
  attention.output_gate = true;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim, .partial_rotary_factor = 0.25});
  c.expect_bool("attention_bias", false);
  c.expect_bool("attn_output_gate", true);
  GatedDeltaSpec delta = read_gated_delta(c);
  delta.grouped_projections = is_next;
  delta.tiled_value_heads = c.bool_or("linear_tiled_value_heads", false);  // GGUF's order
  const auto full = share_mixer(attention);
  const auto linear = share_mixer(delta);
  if (is_dense(c.model_type())) {
    read_dense_network(c, layer);
  } else {
    read_network_of_experts(c, layer);
  }
  c.expect_bool("use_sliding_window", false);
  c.ignore("sliding_window");
  c.expect_string("output_gate_type", "swish");
  const int64_t interval = c.int_or("full_attention_interval", 4, {1, 1024});
  for (const std::string& type : read_layer_types(
           c, num_layers,
           {"layer_types", "linear_attention", std::string(kFullAttention), interval})) {
    layer.mixer = type == kFullAttention ? full : linear;
    spec.layers.push_back(layer);
  }
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.shared = "mlp.shared_expert";
  options.norm_add = zero_centred_norm_add(weights, spec.num_layers());
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view model_type) {
  if (model_type == "qwen3_next") return {};
  return {.prefix = "language_model.model.",
          .head_prefix = "language_model.",
          .outer_model_type = is_dense(model_type) ? "qwen3_5" : "qwen3_5_moe"};
}

}  // namespace
}  // namespace qwen3_5_moe

extern const Family qwen3_5_moe_family;
const Family qwen3_5_moe_family = {
    {"qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_text", "qwen3_next"},
    qwen3_5_moe::read_spec,
    usual_names,
    qwen3_5_moe::create,
    qwen3_5_moe::mlx_names};

}  // namespace moeflux
