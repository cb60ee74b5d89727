// gpt-oss-20b and 120b: sliding and full attention in turn, attention sinks, YaRN, biases
// everywhere, a clamped gated unit, softmax over the chosen experts.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::gpt_oss {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.qkv_bias = attention.o_bias = c.bool_or("attention_bias", true);
  attention.sinks = true;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  c.ignore("initial_context_length");
  const int64_t window = c.require_int("sliding_window", {1, 1 << 30});
  layer.moe = read_experts(c, "intermediate_size");
  layer.moe.router_bias = true;
  layer.moe.expert_bias = true;
  layer.moe.glu = {.alpha = static_cast<float>(c.number_or("swiglu_alpha", 1.702, 0.0, 1e3)),
                   .limit = static_cast<float>(c.number_or("swiglu_limit", 7.0, 0.0, 1e9)),
                   .up_offset = 1.0f};
  for (const bool sliding : read_sliding_layers(c, num_layers)) {
    attention.window = sliding ? window : 0;
    layer.mixer = share_mixer(attention);
    spec.layers.push_back(layer);
  }
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.router = "mlp.router";
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) { return {.experts = "experts"}; }

}  // namespace

extern const Family family = {{"gpt_oss"}, read_spec, usual_names, create, mlx_names};

}  // namespace moeflux::gpt_oss
