// Kolibri 1: norms before and behind attention and networks, positions only where attention sees a
// window, a router whose bias corrects logits and selects, one shared expert.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::kolibri1 {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  c.expect_bool("attention_bias", false);
  attention.qk_norm = QkNorm::kPerHead;
  LayerSpec layer;
  layer.moe = read_experts(c);
  layer.moe.correction_bias = true;
  layer.moe.router.score = RouterScore::kSigmoid;
  layer.moe.corrects_logits = true;
  layer.moe.router.normalize = c.bool_or("norm_topk_prob", false);
  layer.moe.shared_intermediate_size = c.int_or("shared_expert_intermediate_size", 512);
  const int64_t window = read_window(c, 513);
  c.assume("rope_theta", 1e4);
  RopeByWindow rope;
  rope.sliding = read_rope(c, {.head_dim = attention.head_dim});
  if (window == 0) rope.full = rope.sliding;  // as transformers has it
  spec.layers = layers_by_window(std::move(layer), std::move(attention), rope,
                                 read_sliding_pattern(c, num_layers, 5), window);
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"mlp.gate.e_score_correction_bias", "moe.router.expert_bias"}});
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.attention_out_norm = "post_attn_norm";
  options.names.ffn_out_norm = "post_ffn_norm";
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {{"kolibri1"}, read_spec, names, create};

}  // namespace moeflux::kolibri1
