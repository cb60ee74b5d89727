// Arcee's Trinity: norms before and behind attention and networks, output gates, positions only
// where attention sees a window, sigmoid router with a bias that selects, scaled embeddings.
#include <cmath>
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::afmoe {
namespace {

std::vector<bool> read_sliding(Config& c, int64_t num_layers) {
  const int64_t interval = c.int_or("global_attn_every_n_layers", 4, {1, 4096});
  const std::vector<std::string> types = read_layer_types(
      c, num_layers, {"layer_types", "sliding_attention", "full_attention", interval});
  std::vector<bool> sliding;
  for (const std::string& type : types) sliding.push_back(type == "sliding_attention");
  return sliding;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  c.expect_present("mup_enabled");
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  attention.qk_norm = QkNorm::kPerHead;
  attention.gate = HeadGate::kPerElement;
  const RopeSpec rope = read_rope(c, {.head_dim = attention.head_dim});
  const int64_t window = c.require_int("sliding_window", {1, 1 << 30});
  layer.mixer = share_mixer(attention);
  MoeSpec moe = read_experts(c);
  read_noaux_tc(c, moe);
  c.expect_string("score_func", "sigmoid");
  for (const std::string_view key : {"num_expert_groups", "num_limited_groups"}) {
    c.expect_number(key, 1);
  }
  c.ignore("use_grouped_mm");  // says how, not what
  moe.router.normalize = c.bool_or("route_norm", true);
  moe.router.scale = static_cast<float>(c.number_or("route_scale", 1.0, 0.0, 1e6));
  moe.shared_intermediate_size =
      moe.moe_intermediate_size * c.int_or("num_shared_experts", 2, {0, 1024});
  const int64_t num_dense = c.int_or("num_dense_layers", 1, {0, 4096});
  std::vector<bool> dense;
  for (int64_t i = 0; i < num_layers; ++i) dense.push_back(i < num_dense);
  spec.layers = make_layers(c, layer, moe, dense);
  const std::vector<bool> sliding = read_sliding(c, num_layers);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    attention.window = sliding[i] ? window : 0;
    attention.rope = sliding[i] ? rope : RopeSpec{};
    spec.layers[i].mixer = share_mixer(attention);
  }
  if (c.bool_or("mup_enabled", true)) {
    spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"mlp.gate.e_score_correction_bias", "mlp.expert_bias"},
                            {"mlp.gate", "mlp.router.gate"},
                            {"self_attn.g_proj", "self_attn.gate_proj"}});
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.attention_out_norm = "post_attention_layernorm";
  options.names.ffn_norm = "pre_mlp_layernorm";
  options.names.ffn_out_norm = "post_mlp_layernorm";
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) { return {.experts = "experts"}; }

}  // namespace

extern const Family family = {{"afmoe"}, read_spec, names, create, mlx_names};

}  // namespace moeflux::afmoe
