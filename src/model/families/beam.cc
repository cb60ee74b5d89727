// Reflection's Beam: norms before and behind attention and networks, output gates with a bias for
// each head, queries that grow where no positions turn them, a residual that keeps its size.
#include <string>
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::beam {
namespace {

// Each sixth layer and the last see all.
std::vector<bool> read_sliding(Config& c, int64_t num_layers) {
  std::vector<bool> sliding = read_sliding_pattern(c, num_layers, 6);
  if (!c.has("layer_types")) sliding.back() = false;
  return sliding;
}

// Layers of a kind for which rope_parameters has null have no positions; neither says the same of
// those that see all.
AttentionSpec with_positions(Config& c, AttentionSpec attention, const std::string& kind) {
  const Json* parameters = c.find("rope_parameters");
  const bool is_usual =
      parameters == nullptr || !parameters->is_object() ||
      !(parameters->contains("sliding_attention") || parameters->contains("full_attention"));
  const bool rotates = is_usual ? kind == "sliding_attention"
                                : parameters->contains(kind) && !(*parameters)[kind].is_null();
  if (rotates) {
    attention.rope = read_rope(c, {.head_dim = attention.head_dim, .layer_type = kind});
  } else {
    attention.query_scale = {.power = 0.1, .period = 2048, .offset = 1};
  }
  return attention;
}

MoeSpec read_moe(Config& c) {
  MoeSpec moe = read_experts(c);
  c.assume("n_group", 8);
  c.assume("topk_group", 4);
  c.assume("routed_scaling_factor", 2.5);
  read_noaux_tc(c, moe);
  moe.correction_add = 2.0f;
  return moe;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.depth_scaled_residual = true;
  if (!c.mentions("final_logit_softcapping")) c.assume("final_logit_softcapping", 30.0);
  spec.logit_soft_cap = static_cast<float>(c.number_or("final_logit_softcapping", 0.0, 0.0, 1e6));
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  attention.qk_norm = QkNorm::kPerHead;
  attention.gate = HeadGate::kPerElement;
  attention.gate_bias = true;
  c.assume("rope_theta", 1e4);
  AttentionSpec slides = with_positions(c, attention, "sliding_attention");
  slides.window = c.int_or("sliding_window", 512, {0, 1 << 30});
  const auto sliding = share_mixer(std::move(slides));
  const auto full = share_mixer(with_positions(c, attention, "full_attention"));
  const MoeSpec moe = read_moe(c);
  spec.layers = make_layers(c, {}, moe, read_dense_layers(c, num_layers, 3));
  const std::vector<bool> kinds = read_sliding(c, num_layers);
  for (size_t i = 0; i < kinds.size(); ++i) spec.layers[i].mixer = kinds[i] ? sliding : full;
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"self_attn.g_proj", "self_attn.gate_proj"}});
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.attention_out_norm = "post_attention_layernorm";
  options.names.ffn_norm = "pre_feedforward_layernorm";
  options.names.ffn_out_norm = "post_feedforward_layernorm";
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {{"beam"}, read_spec, names, create};

}  // namespace moeflux::beam
