// Qwen3.5 and Qwen3.6 mixture-of-experts models, and Qwen3-Next: three gated DeltaNet layers to one
// gated attention layer, softmax router with renormalised top-k, one gated shared expert. The
// dense models of Qwen3.5 are the same without experts. Lara Mini has windows besides, positions
// only there, no gate of its shared expert. Text only.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"
#include "model/mixers/gated_delta.h"

namespace moeflux::qwen3_5_moe {
namespace {

constexpr std::string_view kFullAttention = "full_attention";

bool is_lara(std::string_view model_type) { return model_type == "lara_mini"; }

bool is_dense(std::string_view model_type) {
  return model_type == "qwen3_5" || model_type == "qwen3_5_text";
}

void read_network_of_experts(Config& c, LayerSpec& layer) {
  layer.moe = read_experts(c);
  layer.moe.shared_intermediate_size = c.require_int("shared_expert_intermediate_size");
  if (is_lara(c.model_type())) {
    layer.moe.router.normalize = c.bool_or("norm_topk_prob", true);
    return;
  }
  layer.moe.shared_gate = true;
  c.expect_bool("norm_topk_prob", true);
  c.expect_number("decoder_sparse_step", 1);
  if (!c.ints_or("mlp_only_layers", {}).empty()) {
    c.fail(ErrorCode::kUnsupported, "mlp_only_layers is not empty: dense layers in this family");
  }
  c.ignore("intermediate_size");  // of those dense layers
}

// A period of Lara's layers.
constexpr std::array<std::string_view, 5> kLaraLayers = {"linear_attention", "sliding_attention",
                                                         "linear_attention", kFullAttention,
                                                         "sliding_attention"};

std::vector<std::string> read_lara_layers(Config& c, int64_t num_layers) {
  constexpr std::string_view kKey = "layer_types";
  std::vector<std::string> types;
  for (size_t i = 0; i < static_cast<size_t>(num_layers); ++i) {
    types.emplace_back(kLaraLayers[i % kLaraLayers.size()]);
  }
  if (c.has(kKey)) types = c.require_strings(kKey);
  c.ignore(kKey);
  if (types.size() != static_cast<size_t>(num_layers)) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("{} has {} entries, num_hidden_layers is {}", kKey, types.size(), num_layers));
  }
  for (const std::string& type : types) {
    if (std::ranges::find(kLaraLayers, type) != kLaraLayers.end()) continue;
    c.fail(ErrorCode::kUnsupported,
           formatted("{} has \"{}\", known are linear_attention, sliding_attention and "
                     "full_attention",
                     kKey, type));
  }
  return types;
}

Result<ModelSpec> read_lara(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  attention.qk_norm = QkNorm::kPerHead;
  GatedDeltaSpec delta = read_gated_delta(c);
  delta.one_projection = true;
  const auto linear = share_mixer(delta);
  const auto full = share_mixer(attention);
  c.assume("rope_theta", 1e4);
  attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  attention.window = c.int_or("sliding_window", 512, {1, 1 << 30});
  const auto slides = share_mixer(attention);
  LayerSpec layer;
  read_network_of_experts(c, layer);
  for (const std::string& type : read_lara_layers(c, num_layers)) {
    layer.mixer = type == kFullAttention ? full : type == "linear_attention" ? linear : slides;
    spec.layers.push_back(layer);
  }
  return finish_spec(c, std::move(spec));
}

Result<ModelSpec> read_spec(Config& c) {
  if (is_lara(c.model_type())) return read_lara(c);
  ModelSpec spec = read_trunk(c);
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  const int64_t num_layers = read_num_layers(c);
  const bool is_next = c.model_type() == "qwen3_next";
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.qk_norm = QkNorm::kPerHead;
  attention.output_gate = true;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim, .partial_rotary_factor = 0.25});
  read_attention_bias(c, attention);
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
  layer.mixer = full;
  read_draft_layer(c, spec, "mtp_num_hidden_layers", layer);
  if (spec.draft_layers > 0) c.expect_bool("mtp_use_dedicated_embeddings", false);
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  if (is_lara(spec.model_type)) scheme.renamed = {{"linear_attn.norm", "linear_attn.out_norm"}};
  if (spec.draft_layers == 0) return scheme;
  const std::string draft = formatted("layers.{}", spec.num_layers() - 1);
  scheme.renamed = {{draft + ".enorm", "mtp.pre_fc_norm_embedding"},
                    {draft + ".hnorm", "mtp.pre_fc_norm_hidden"},
                    {draft + ".eh_proj", "mtp.fc"},
                    {draft + ".shared_head.norm", "mtp.norm"},
                    {draft, "mtp.layers.0"}};
  return scheme;
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.shared = "mlp.shared_expert";
  if (!is_lara(spec.model_type))
    options.norm_add = zero_centred_norm_add(weights, spec.num_layers());
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view model_type) {
  if (is_lara(model_type)) return {};
  if (model_type == "qwen3_next") return {.norms_hold_one = true};
  return {.prefix = "language_model.model.",
          .head_prefix = "language_model.",
          .norms_hold_one = true,
          .outer_model_type = is_dense(model_type) ? "qwen3_5" : "qwen3_5_moe"};
}

}  // namespace

extern const Family family = {
    {"qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_text", "qwen3_next", "lara_mini"},
    read_spec,
    names,
    create,
    mlx_names};

}  // namespace moeflux::qwen3_5_moe
