// OLMoE: q and k norms over all heads at once, softmax router whose weights are not renormalised.
#include <utility>

#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::olmoe {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.qk_norm = QkNorm::kWhole;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  read_attention_bias(c, attention);
  if (c.has("clip_qkv")) c.fail(ErrorCode::kUnsupported, "clip_qkv is set; only null is supported");
  c.ignore("clip_qkv");
  layer.mixer = share_mixer(attention);
  layer.moe = read_experts(c, "intermediate_size");
  layer.moe.router.normalize = c.bool_or("norm_topk_prob", false);
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  return finish_spec(c, std::move(spec));
}

}  // namespace

extern const Family family = {{"olmoe"}, read_spec};

}  // namespace moeflux::olmoe
