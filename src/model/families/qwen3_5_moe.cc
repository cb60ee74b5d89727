// Qwen3.5 and Qwen3.6 mixture-of-experts models, and Qwen3-Next: three gated DeltaNet layers to one
// gated attention layer, softmax router with renormalised top-k, one gated shared expert. Text
// only.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family.h"
#include "model/spec_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kFullAttention = "full_attention";

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  const bool is_next = c.model_type() == "qwen3_next";
  // The defaults of other families would be wrong here: heads are wider than hidden_size / heads.
  c.require({"num_key_value_heads", "head_dim", "moe_intermediate_size"});
  if (!c.has("rope_theta")) {
    Config rope = c.object("rope_parameters");
    rope.require({"rope_theta"});
    c.absorb(rope);
  }
  LayerSpec layer;
  layer.attention = read_heads(c, spec.hidden_size);
  layer.attention.qk_norm = QkNorm::kPerHead;
  layer.attention.output_gate = true;
  layer.attention.rope = read_rope(
      c, {.head_dim = layer.attention.head_dim, .partial_rotary_factor = 0.25, .theta = 1e7});
  c.expect_bool("attention_bias", false);
  c.expect_bool("attn_output_gate", true);
  layer.gated_delta = read_gated_delta(c);
  layer.gated_delta.grouped_projections = is_next;
  layer.moe = read_experts(c);
  layer.moe.shared_intermediate_size = c.require_int("shared_expert_intermediate_size");
  layer.moe.shared_gate = true;
  c.expect_bool("norm_topk_prob", true);
  if (c.int_or("decoder_sparse_step", 1) != 1) {
    c.fail(ErrorCode::kUnsupported, "decoder_sparse_step is not 1: dense layers in this family");
  }
  for (const std::string_view key : {"intermediate_size", "mlp_only_layers"}) c.ignore(key);
  const int64_t interval = c.int_or("full_attention_interval", 4, {1, 1024});
  for (const std::string& type : read_layer_types(
           c, num_layers,
           {"layer_types", "linear_attention", std::string(kFullAttention), interval})) {
    layer.mixer = type == kFullAttention ? MixerKind::kAttention : MixerKind::kGatedDelta;
    spec.layers.push_back(layer);
  }
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.shared = "mlp.shared_expert";
  options.norm_add = blocks::zero_centred_norm_add(weights, spec.num_layers());
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family qwen3_5_moe_family;
const Family qwen3_5_moe_family = {
    {"qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"}, read_spec, usual_names, create};

}  // namespace moeflux
