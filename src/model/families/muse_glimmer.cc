// Muse Glimmer and Muse Spark (text): embeddings, queries and keys normed without weights, output
// gates, norms of (1 + w) before and behind attention and networks, positions only where attention
// sees a window. Muse Spark has experts that see fewer numbers, norms of heads and of what experts
// give, and a residual that gates weigh.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::muse_glimmer {
namespace {

// Counted from the last layer, each fourth sees all and knows no positions.
bool is_usually_full(int64_t layer, int64_t num_layers) {
  return (num_layers - 1 - layer) % 4 == 0;
}

std::vector<bool> read_sliding(Config& c, int64_t num_layers) {
  if (c.has("layer_types")) return read_sliding_layers(c, num_layers);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < num_layers; ++i) sliding.push_back(!is_usually_full(i, num_layers));
  return sliding;
}

// transformers turns all layers with a base by that of rope_parameters, whatever the list has.
std::vector<bool> read_rotating(Config& c, int64_t num_layers) {
  std::vector<bool> rotating;
  const std::vector<Json> bases = read_layer_entries(c, "layer_rope_theta", num_layers);
  for (int64_t i = 0; i < num_layers; ++i) {
    rotating.push_back(bases.empty() ? !is_usually_full(i, num_layers)
                                     : bases[static_cast<size_t>(i)] != 0);
  }
  return rotating;
}

bool is_spark(std::string_view model_type) { return model_type.starts_with("muse_spark"); }

MoeSpec read_moe(Config& c, const ModelSpec& spec) {
  MoeSpec moe = read_experts(c);
  read_noaux_tc(c, moe);
  moe.router.normalize_epsilon = 1e-15f;
  moe.router_multiplier = spec.logit_multiplier;
  moe.latent_size = c.int_or("moe_hidden_size", 4096);
  moe.latent_norm_eps = spec.rms_norm_eps;
  moe.expert_norm_eps = spec.out_norm_eps;
  c.expect_number("num_shared_experts", 0);
  return moe;
}

Result<ModelSpec> read_spec(Config& c) {
  const bool has_experts = is_spark(c.model_type());
  if (!has_experts) c.ignore("hidden_act");
  ModelSpec spec = read_trunk(c);
  c.expect_string("hidden_activation", "silu");
  c.expect_present("head_dim");
  spec.embedding_norm = true;
  spec.out_norm_eps = static_cast<float>(c.number_or("post_norm_eps", 1e-8, 1e-30, 1.0));
  spec.logit_multiplier = static_cast<float>(c.number_or(
      "output_multiplier", has_experts ? 0.1767766952966369 : 0.19611613513818404, 1e-6, 1e6));
  spec.logit_soft_cap = static_cast<float>(c.number_or("final_logit_softcapping", 20.0, 0.0, 1e6));
  spec.norms_hold_one = c.bool_or("norms_hold_one", false);  // GGUF's
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  attention.qk_norm = QkNorm::kPlain;
  attention.gate = HeadGate::kPerElement;
  attention.out_norm = has_experts;
  attention.scale *= static_cast<float>(
      c.number_or("qk_scale_factor", has_experts ? 5.4730064863875 : 3.87, 1e-6, 1e6));
  // Its class reads a base nowhere else.
  if (has_experts && !c.has("rope_scaling")) {
    c.assume("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}});
  }
  RopeSpec rope = read_rope(
      c, {.head_dim = attention.head_dim, .interleaved = c.bool_or("rope_interleave", false)});
  // Queries and keys are normed here when they have turned, there before it: YaRN's factor of both,
  // which the norm would take away, belongs to the scale.
  const float plain_scale = attention.scale;
  const float turned_scale = plain_scale * rope.attention_factor * rope.attention_factor;
  rope.attention_factor = 1.0f;
  const int64_t window = read_window(c, 2048);
  const std::vector<bool> sliding = read_sliding(c, num_layers);
  const std::vector<bool> rotating = read_rotating(c, num_layers);
  if (has_experts) {
    spec.residual_gate_temperature =
        static_cast<float>(c.number_or("residual_gate_temperature", 0.3, 1e-6, 1e6));
    spec.layers = make_layers(c, {}, read_moe(c, spec), read_dense_layers(c, num_layers));
  } else {
    LayerSpec layer;
    read_dense_network(c, layer);
    spec.layers.assign(static_cast<size_t>(num_layers), layer);
  }
  for (size_t i = 0; i < sliding.size(); ++i) {
    attention.window = sliding[i] ? window : 0;
    attention.rope = rotating[i] ? rope : RopeSpec{};
    attention.scale = rotating[i] ? turned_scale : plain_scale;
    spec.layers[i].mixer = share_mixer(attention);
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"self_attn.g_proj", "self_attn.gate_proj"}});
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  if (is_spark(spec.model_type)) {
    options.plain_attention_out_norm = true;
    options.ffn_out_norm_scales_first = true;
    options.names.latent_in = "mlp.pre_expert_proj";
    options.names.latent_out = "mlp.post_expert_proj";
  } else {
    options.names.attention_out_norm = "post_attention_layernorm";
  }
  options.names.ffn_norm = "pre_feedforward_layernorm";
  options.names.ffn_out_norm = "post_feedforward_layernorm";
  options.norm_add = spec.norms_hold_one ? 0.0f : 1.0f;
  options.final_norm_add = 0.0f;
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {
    {"muse_glimmer", "muse_glimmer_text", "muse_spark", "muse_spark_text"},
    read_spec,
    names,
    create};

}  // namespace moeflux::muse_glimmer
