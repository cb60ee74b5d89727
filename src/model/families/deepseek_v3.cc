// DeepSeek-V3, R1 and V3.1, Cogito-V2-671B, Kimi-K2, and GLM-4.7-Flash: latent attention, sigmoid
// router with a correction bias and groups, ungated shared experts, dense first layers.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family.h"
#include "model/mixers/latent_attention.h"
#include "model/spec_fields.h"

namespace moeflux {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  layer.mixer = share_mixer(read_latent_attention(c, {.interleaved = true}));
  MoeSpec moe = read_experts(c);
  // Publishers differ in what they leave out, and their code in what that means.
  for (const std::string_view key : {"n_group", "topk_group", "routed_scaling_factor"}) {
    c.expect_present(key);
  }
  read_noaux_tc(c, moe);
  read_shared_experts(c, moe);
  spec.layers = make_layers(c, layer, moe, read_dense_layers(c, num_layers));
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  return blocks::make_decoder(spec, weights, {});
}

// mlx-lm splits kv_b_proj by heads when it reads, and would quantise what it splits once more.
MlxNames mlx_names(std::string_view) {
  return {.plain_router = true, .plain_modules = {"kv_b_proj"}};
}

}  // namespace

extern const Family deepseek_v3_family;
const Family deepseek_v3_family = {{"deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite"},
                                   read_spec,
                                   usual_names,
                                   create,
                                   mlx_names};

}  // namespace moeflux
