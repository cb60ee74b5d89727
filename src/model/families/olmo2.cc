// OLMo 2 and OLMo 3: norms behind attention and networks alone, norms over all queries and over all
// keys of a token; OLMo 3 with windows in three of four layers, whose positions are not scaled.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::olmo2 {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  read_dense_network(c, layer);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  attention.qk_norm = QkNorm::kWhole;
  if (c.model_type() == "olmo2") {
    attention.rope = read_rope(c, {.head_dim = attention.head_dim});
    layer.mixer = share_mixer(std::move(attention));
    spec.layers.assign(static_cast<size_t>(num_layers), layer);
    return finish_spec(c, std::move(spec));
  }
  const int64_t window = read_window(c, 4096);
  const std::vector<bool> sliding = read_sliding_pattern(c, num_layers, 4);
  // As transformers reads rope_theta: of layers that see all, the others have its usual base.
  const RopeByWindow rope = read_rope_by_window(
      c, attention.head_dim, {.local_theta_key = "", .theta = 5e5, .local_theta = 5e5});
  spec.layers = layers_by_window(layer, attention, rope, sliding, window);
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.input_norm = "";
  options.names.ffn_norm = "";
  options.names.attention_out_norm = "post_attention_layernorm";
  options.names.ffn_out_norm = "post_feedforward_layernorm";
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {{"olmo2", "olmo3"}, read_spec, usual_names, create};

}  // namespace moeflux::olmo2
