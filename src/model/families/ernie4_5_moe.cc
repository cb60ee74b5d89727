// ERNIE 4.5 (text): grouped attention with positions in neighbouring pairs, softmax router with a
// bias that selects, shared experts.
#include <utility>

#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::ernie4_5_moe {
namespace {

// Every interval-th layer, counted from 1, between the first and the last with experts.
std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  const int64_t interval = c.int_or("moe_layer_interval", 1, {1, 4096});
  const int64_t first = c.int_or("moe_layer_start_index", 1, {0, 4096});
  const int64_t last = c.int_or("moe_layer_end_index", -1, {-1, 4096});
  std::vector<bool> dense;
  for (int64_t i = 0; i < num_layers; ++i) {
    dense.push_back((i + 1) % interval != 0 || i < first || (last >= 0 && i > last));
  }
  return dense;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  c.expect_bool("use_bias", false);
  attention.rope = read_rope(c, {.head_dim = attention.head_dim, .interleaved = true});
  layer.mixer = share_mixer(attention);
  MoeSpec moe = read_experts(c, {.experts = "moe_num_experts", .chosen = "moe_k"});
  c.expect_string("moe_gate_act", "softmax");
  c.expect_bool("moe_use_aux_free", true);
  moe.correction_bias = true;
  moe.router.normalize_least = static_cast<float>(c.number_or("moe_norm_min", 1e-12, 0.0, 1.0));
  moe.shared_intermediate_size =
      moe.moe_intermediate_size * c.int_or("moe_num_shared_experts", 2, {0, 1024});
  spec.layers = make_layers(c, layer, moe, read_dense(c, num_layers));
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(
      spec, {{"mlp.gate.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias"}});
}

}  // namespace

extern const Family family = {{"ernie4_5_moe"}, read_spec, names};

}  // namespace moeflux::ernie4_5_moe
