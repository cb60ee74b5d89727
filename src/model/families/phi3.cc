// Phi-3, Phi-3.5 and Phi-4: q, k and v in one matrix, gate and up in one; LongRoPE, over a part of
// a head in Phi-4-mini.
#include <utility>

#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::phi3 {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  read_dense_network(c, layer);
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  c.expect_bool("attention_bias", false);
  c.assume("rope_theta", 10000.0);
  attention.rope = read_rope(c, {.head_dim = attention.head_dim, .is_longrope = true});
  spec.for_short_texts = attention.rope.for_short_texts;
  c.ignore("original_max_position_embeddings");  // of LongRoPE
  attention.window = c.int_or("sliding_window", 0, {0, 1 << 30});
  layer.mixer = share_mixer(std::move(attention));
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  return finish_spec(c, std::move(spec));
}

}  // namespace

extern const Family family = {{"phi3"}, read_spec};

}  // namespace moeflux::phi3
