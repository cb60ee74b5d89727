// MiniMax-M2, M2.1, M2.5 and M2.7: q and k norms over all heads at once, partial rope, sigmoid
// router with a correction bias.
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::minimax_m2 {
namespace {

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.qk_norm = c.bool_or("use_qk_norm", true) ? QkNorm::kWhole : QkNorm::kNone;
  c.expect_string("qk_norm_type", "per_layer");
  const int64_t rotary_dim = c.int_or("rotary_dim", attention.head_dim, {2, attention.head_dim});
  attention.rope = read_rope(c, {.head_dim = attention.head_dim,
                                 .partial_rotary_factor = static_cast<double>(rotary_dim) /
                                                          static_cast<double>(attention.head_dim)});
  layer.mixer = share_mixer(attention);
  layer.moe = read_experts(c, "intermediate_size");
  read_noaux_tc(c, layer.moe);
  c.expect_bool("use_routing_bias", true);
  c.expect_number("shared_intermediate_size", 0);
  for (const int64_t type : c.ints_or("attn_type_list", {})) {
    if (type == 1) continue;  // softmax attention
    c.fail(ErrorCode::kUnsupported,
           formatted("attn_type_list has {}, only 1 (softmax attention) is supported", type));
  }
  for (const std::string_view beta :
       {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"}) {
    c.expect_number(beta, 1.0);
  }
  for (const std::string_view key : {"router_jitter_noise", "shared_moe_mode", "use_mtp",
                                     "num_mtp_modules", "mtp_transformer_layers"}) {
    c.ignore(key);
  }
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  if (blocks::any_layer_has(spec, weights, "block_sparse_moe.gate.weight")) {
    options.names.moe = "block_sparse_moe";
    options.names.router = "block_sparse_moe.gate";
    options.names.correction_bias = "block_sparse_moe.e_score_correction_bias";
  }
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) {
  return {
      .renamed = {{"mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias"},
                  {"mlp", "block_sparse_moe"}}};
}

}  // namespace

extern const Family family = {{"minimax_m2"}, read_spec, usual_names, create, mlx_names};

}  // namespace moeflux::minimax_m2
