// Tencent Hy3: grouped attention with norms of queries and keys, sigmoid router with a bias that
// selects, one shared expert.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::hy_v3 {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  c.expect_bool("mlp_bias", false);
  c.expect_bool("qk_norm", true);
  attention.qk_norm = QkNorm::kPerHead;
  attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  layer.mixer = share_mixer(attention);
  const bool has_own_width = !c.has("moe_intermediate_size") && c.has("expert_hidden_dim");
  MoeSpec moe = read_experts(c, has_own_width ? "expert_hidden_dim" : "moe_intermediate_size");
  read_noaux_tc(c, moe);
  moe.router.scale = static_cast<float>(c.require_number("router_scaling_factor", 0.0, 1e6));
  for (const std::string_view key :
       {"moe_router_use_sigmoid", "moe_router_enable_expert_bias", "route_norm"}) {
    c.expect_bool(key, true);
  }
  c.ignore("enable_lm_head_fp32");  // it is anyhow
  c.expect_number("expert_hidden_dim", static_cast<double>(moe.moe_intermediate_size));
  moe.shared_intermediate_size =
      moe.moe_intermediate_size * c.int_or("num_shared_experts", 1, {0, 1024});
  spec.layers = make_layers(c, layer, moe, read_dense_layers(c, num_layers, 1));
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"mlp.gate.e_score_correction_bias", "mlp.expert_bias"},
                            {"mlp.gate", "mlp.router.gate"},
                            {"mlp.shared_experts", "mlp.shared_mlp"}});
}

// MLX has the bias in the router, Hugging Face beside it.
std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  constexpr std::string_view kOwnBias = "mlp.router.expert_bias";
  if (blocks::any_layer_has(spec, weights, kOwnBias)) options.names.correction_bias = kOwnBias;
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {{"hy_v3"}, read_spec, names, create};

}  // namespace moeflux::hy_v3
