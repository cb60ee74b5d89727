// Mellum 2 and Flint: Qwen3's mixture with windows in most layers. Mellum has rotary positions of
// their own in either kind of layer; Flint has sinks, positions only where there is a window, and
// sigmoid scores without a bias that selects.
#include <utility>

#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::mellum {
namespace {

// Flint sees all in its first two layers, in each fourth and in the last.
bool usually_slides(int64_t layer, int64_t num_layers, bool is_flint) {
  return is_flint && layer >= 2 && layer % 4 != 1 && layer != num_layers - 1;
}

std::vector<bool> read_sliding(Config& c, int64_t num_layers) {
  if (c.has("layer_types")) return read_sliding_layers(c, num_layers);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < num_layers; ++i) {
    sliding.push_back(usually_slides(i, num_layers, c.model_type() == "flint"));
  }
  return sliding;
}

// Flint's layers are dense where a list says so and between the sparse steps.
std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  if (c.model_type() != "flint") return read_dense_layers(c, num_layers);
  const int64_t step = c.int_or("decoder_sparse_step", 1, {1, 4096});
  std::vector<bool> dense;
  for (int64_t i = 0; i < num_layers; ++i) dense.push_back((i + 1) % step != 0);
  mark_listed_layers(c, "mlp_only_layers", dense, {0, 1});
  return dense;
}

RopeByWindow read_positions(Config& c, const AttentionSpec& attention) {
  if (c.model_type() != "flint") {
    return read_rope_by_window(c, attention.head_dim, {.theta = 5e5, .local_theta = 1e4});
  }
  c.assume("rope_theta", 1e4);
  return {.full = {}, .sliding = read_rope(c, {.head_dim = attention.head_dim})};
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  const bool is_flint = c.model_type() == "flint";
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  c.expect_bool("use_qk_norm", true);
  attention.qk_norm = QkNorm::kPerHead;
  attention.sinks = is_flint;
  MoeSpec moe = read_experts(c);
  moe.router.normalize = c.bool_or("norm_topk_prob", true);
  if (is_flint) {
    moe.router.score = RouterScore::kSigmoid;
    moe.shared_intermediate_size = c.int_or("shared_expert_intermediate_size", 1024);
  }
  const int64_t window = c.int_or("sliding_window", is_flint ? 513 : 1024, {0, 1 << 30});
  const std::vector<LayerSpec> layers = layers_by_window(
      {}, attention, read_positions(c, attention), read_sliding(c, num_layers), window);
  spec.layers = make_layers(c, {}, moe, read_dense(c, num_layers));
  for (size_t i = 0; i < layers.size(); ++i) spec.layers[i].mixer = layers[i].mixer;
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  if (spec.model_type == "flint") {
    scheme.renamed = {{"mlp.shared_experts", "mlp.shared_expert"},
                      {"self_attn.sinks", "self_attn.softmax_offset"}};
  }
  return scheme;
}

}  // namespace

extern const Family family = {{"mellum", "flint"}, read_spec, names};

}  // namespace moeflux::mellum
