// Qwen3 and Qwen2 mixture-of-experts models: grouped attention, softmax router; Qwen2 with biases
// and a gated shared expert, Qwen3 with q and k norms. Their dense models are the same without
// experts. Qwen3-VL and Qwen3-Omni are Qwen3 where all tokens are text: the three positions of a
// token are the same then, and no image adds to layers.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::qwen3_moe {
namespace {

bool is_tower(std::string_view model_type) {
  return model_type.starts_with("qwen3_vl_moe") || model_type.starts_with("qwen3_omni_moe");
}

// Layers are dense where mlp_only_layers says so and between the sparse steps.
std::vector<bool> read_dense_pattern(Config& c, int64_t num_layers) {
  const int64_t step = c.int_or("decoder_sparse_step", 1, {1, 4096});
  std::vector<bool> dense;
  for (int64_t i = 0; i < num_layers; ++i) dense.push_back((i + 1) % step != 0);
  mark_listed_layers(c, "mlp_only_layers", dense);
  return dense;
}

// Where dense models have windows: as layer_types says, or from max_window_layers on.
std::vector<bool> read_windows(Config& c, int64_t num_layers) {
  if (c.has("layer_types")) return read_sliding_layers(c, num_layers);
  const int64_t first = c.int_or("max_window_layers", 28, {0, 4096});
  std::vector<bool> sliding;
  for (int64_t i = 0; i < num_layers; ++i) sliding.push_back(i >= first);
  return sliding;
}

std::vector<LayerSpec> read_dense_layers(Config& c, AttentionSpec attention, int64_t num_layers) {
  LayerSpec layer;
  read_dense_network(c, layer);
  layer.mixer = share_mixer(attention);
  std::vector<LayerSpec> layers(static_cast<size_t>(num_layers), layer);
  const bool has_windows = c.bool_or("use_sliding_window", false);
  const int64_t window = c.int_or("sliding_window", 0, {0, 1 << 30});
  const std::vector<bool> sliding = read_windows(c, num_layers);
  if (!has_windows || window == 0) return layers;
  attention.window = window;
  const auto slides = share_mixer(attention);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (sliding[i]) layers[i].mixer = slides;
  }
  return layers;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  const bool is_qwen2 = c.model_type().starts_with("qwen2");
  const bool is_dense = c.model_type() == "qwen3" || c.model_type() == "qwen2";
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  if (is_qwen2) {
    if (is_dense) {
      c.ignore("attention_bias");  // which their code does not know
    } else {
      c.expect_bool("attention_bias", false);
    }
    attention.qkv_bias = c.bool_or("qkv_bias", true);
  } else {
    c.expect_bool("qkv_bias", false);
    c.expect_bool("use_qk_norm", true);
    read_attention_bias(c, attention);
  }
  attention.qk_norm = is_qwen2 ? QkNorm::kNone : QkNorm::kPerHead;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  if (is_dense) {
    spec.layers = read_dense_layers(c, std::move(attention), num_layers);
    return finish_spec(c, std::move(spec));
  }
  c.expect_bool("use_sliding_window", false);
  c.ignore("sliding_window");
  (void)read_layer_types(c, num_layers, {"layer_types", "full_attention", "full_attention", 1});
  layer.mixer = share_mixer(attention);
  MoeSpec moe = read_experts(c);
  moe.router.normalize = c.bool_or("norm_topk_prob", is_tower(c.model_type()));
  if (is_qwen2) {
    moe.shared_intermediate_size = c.require_int("shared_expert_intermediate_size");
    moe.shared_gate = true;
  }
  spec.layers = make_layers(c, layer, moe, read_dense_pattern(c, num_layers));
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  if (spec.model_type.starts_with("qwen3_omni_moe")) {
    for (const char* prefix : {"thinker.", "thinker.model."}) {
      scheme.prefixes.insert(scheme.prefixes.begin(), prefix);
    }
  }
  return scheme;
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.shared = "mlp.shared_expert";
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view model_type) {
  if (!is_tower(model_type)) return {};
  return {.prefix = "language_model.model.",
          .head_prefix = "language_model.",
          .outer_model_type = "qwen3_vl_moe"};
}

}  // namespace

extern const Family family = {{"qwen3_moe", "qwen3", "qwen2_moe", "qwen2", "qwen3_vl_moe",
                               "qwen3_vl_moe_text", "qwen3_omni_moe", "qwen3_omni_moe_text"},
                              read_spec,
                              names,
                              create,
                              mlx_names,
                              {{"qwen2_5_vl", "qwen2"}}};

}  // namespace moeflux::qwen3_moe
