// Mistral Small 4: latent attention whose queries grow with their position, softmax router with
// renormalised weights, ungated shared experts.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/latent_attention.h"

namespace moeflux::mistral4 {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  const LatentAttentionSpec attention =
      read_latent_attention(c, {.interleaved = true, .scales_queries = true});
  LayerSpec layer;
  layer.mixer = share_mixer(attention);
  MoeSpec moe = read_experts(c);
  moe.router.normalize = c.bool_or("norm_topk_prob", true);
  moe.router.normalize_epsilon = 1e-20f;
  moe.router.scale = static_cast<float>(c.number_or("routed_scaling_factor", 1.0, 0.0, 1e6));
  c.expect_number("n_group", 1);
  c.expect_number("topk_group", 1);
  read_shared_experts(c, moe);
  spec.layers = make_layers(c, layer, moe, read_dense_layers(c, num_layers));
  return finish_spec(c, std::move(spec));
}

MlxNames mlx_names(std::string_view) { return {.plain_modules = {"kv_b_proj"}}; }

}  // namespace

extern const Family family = {
    {"mistral4"}, read_spec, usual_names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::mistral4
