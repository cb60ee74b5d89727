// DeepSeek-V2 and V2-Lite: latent attention, softmax router limited to the best groups, weights
// scaled and not renormalised.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"

namespace moeflux::deepseek_v2 {
namespace {

void read_router(Config& c, MoeSpec& moe) {
  c.expect_string("scoring_func", "softmax");
  c.expect_bool("norm_topk_prob", false);
  moe.router.normalize = false;
  moe.router.scale = static_cast<float>(c.number_or("routed_scaling_factor", 1.0, 0.0, 1e6));
  const int64_t groups = c.int_or("n_group", 1, {1, 65536});
  const int64_t kept = c.int_or("topk_group", 1, {1, 65536});
  const std::string method = c.string_or("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    moe.router.num_groups = groups;
    moe.router.groups_kept = kept;
    if (moe.num_experts % groups != 0 || kept > groups) {
      c.fail(ErrorCode::kInvalidArgument,
             formatted("n_group {} and topk_group {} do not divide n_routed_experts {}", groups,
                       kept, moe.num_experts));
    }
  } else if (method != "greedy") {
    c.fail(ErrorCode::kUnsupported,
           formatted("topk_method \"{}\", known are greedy and group_limited_greedy", method));
  }
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  layer.mixer = share_mixer(read_latent_attention(c, {.interleaved = true}));
  MoeSpec moe = read_experts(c);
  read_router(c, moe);
  c.expect_bool("mlp_bias", false);
  read_shared_experts(c, moe, 2);
  spec.layers = make_layers(c, layer, moe, read_dense_layers(c, num_layers));
  return finish_spec(c, std::move(spec));
}

MlxNames mlx_names(std::string_view) { return {.plain_router = true}; }

}  // namespace

extern const Family family = {
    {"deepseek_v2"}, read_spec, usual_names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::deepseek_v2
