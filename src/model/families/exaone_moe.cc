// K-EXAONE: grouped attention with norms of queries and keys, which knows positions only where it
// sees a window; the mixture of DeepSeek-V3.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::exaone_moe {
namespace {

// mlp_layer_types, the original is_moe_layer of a truth value a layer, or first_k_dense_replace.
std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  c.ignore("first_last_k_dense_replace");  // the others say it
  const Json* is_moe = c.find("is_moe_layer");
  if (is_moe == nullptr || is_moe->is_null() || c.has("mlp_layer_types")) {
    c.ignore("is_moe_layer");
    return read_dense_layers(c, num_layers, 1);
  }
  for (const std::string_view key : {"is_moe_layer", "first_k_dense_replace"}) c.ignore(key);
  std::vector<bool> dense;
  if (is_moe->is_array()) {
    for (const Json& moe : *is_moe) dense.push_back(moe == false);
  }
  if (static_cast<int64_t>(dense.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("is_moe_layer has {} entries, num_hidden_layers is {}", dense.size(),
                     num_layers));
    dense.resize(static_cast<size_t>(num_layers));
  }
  return dense;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  c.ignore("attention_bias");  // which its code does not know
  attention.qk_norm = QkNorm::kPerHead;
  const RopeSpec rope = read_rope(c, {.head_dim = attention.head_dim});
  layer.mixer = share_mixer(attention);
  MoeSpec moe = read_experts(c);
  c.assume("routed_scaling_factor", 2.5);
  read_noaux_tc(c, moe);
  moe.shared_intermediate_size =
      moe.moe_intermediate_size * c.int_or("num_shared_experts", 1, {0, 1024});
  spec.layers = make_layers(c, layer, moe, read_dense(c, num_layers));
  const int64_t window = read_window(c, 4096);
  c.ignore("sliding_window_pattern");  // layer_types say it
  const std::vector<bool> sliding = read_sliding_layers(c, num_layers);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    attention.window = sliding[i] ? window : 0;
    attention.rope = sliding[i] || window == 0 ? rope : RopeSpec{};
    spec.layers[i].mixer = share_mixer(attention);
  }
  return finish_spec(c, std::move(spec));
}

// Hugging Face has the bias beside the gate, MLX and GGUF have it in there.
std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  constexpr std::string_view kOwnBias = "mlp.e_score_correction_bias";
  if (blocks::any_layer_has(spec, weights, kOwnBias)) options.names.correction_bias = kOwnBias;
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) {
  return {.renamed = {{"mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}},
          .plain_router = true};
}

}  // namespace

extern const Family family = {{"exaone_moe"}, read_spec, usual_names, create, mlx_names};

}  // namespace moeflux::exaone_moe
