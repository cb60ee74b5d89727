// Poolside's Laguna: sliding and full attention with heads and positions of their own, gates of
// heads through a softplus, sigmoid router with a bias that selects, one shared expert.
#include <optional>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::laguna {
namespace {

std::optional<HeadGate> gate_named(const Json& name) {
  if (name == true || name == "per-head" || name == "per_head") return HeadGate::kPerHead;
  if (name == "per-element" || name == "per_element") return HeadGate::kPerElement;
  return std::nullopt;
}

// gating says it of all layers, and gating_types, where it stands, of each: they must agree.
HeadGate read_gate(Config& c) {
  std::optional<HeadGate> gate = HeadGate::kPerHead;
  for (const std::string_view key : {"gating", "gating_types"}) {
    c.ignore(key);
    const Json* said = c.find(key);
    if (said == nullptr || said->is_null()) continue;
    const Json names = said->is_array() ? *said : Json::array({*said});
    for (const Json& name : names) {
      const std::optional<HeadGate> own = gate_named(name);
      if (key == "gating") gate = own;
      if (own && own == gate) continue;
      c.fail(
          ErrorCode::kUnsupported,
          formatted("{} has {}, known are true, \"per-head\" and \"per-element\", one of them for "
                    "all layers",
                    key, json_excerpt(name)));
      return HeadGate::kNone;
    }
  }
  return *gate;
}

// num_attention_heads_per_layer, or as many in each.
std::vector<int64_t> read_heads_per_layer(Config& c, int64_t num_layers,
                                          const AttentionSpec& attention) {
  constexpr std::string_view kKey = "num_attention_heads_per_layer";
  std::vector<int64_t> heads(static_cast<size_t>(num_layers), attention.num_heads);
  if (c.has(kKey)) heads = read_layer_ints(c, kKey, num_layers);
  c.ignore(kKey);
  for (int64_t& count : heads) {
    if (count > 0 && count <= 4096 && count % attention.num_kv_heads == 0) continue;
    c.fail(ErrorCode::kInvalidArgument,
           formatted("num_attention_heads_per_layer has {}, expected a multiple of "
                     "num_key_value_heads {}, at most 4096",
                     count, attention.num_kv_heads));
    count = attention.num_heads;
  }
  return heads;
}

std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  if (c.has("mlp_layer_types")) {
    c.ignore("mlp_only_layers");  // the same
    return read_dense_layers(c, num_layers);
  }
  std::vector<bool> dense(static_cast<size_t>(num_layers), false);
  mark_listed_layers(c, "mlp_only_layers", dense, {0});
  return dense;
}

MoeSpec read_moe(Config& c) {
  MoeSpec moe = read_experts(c);
  read_noaux_tc(c, moe);
  moe.router.normalize_epsilon = 0.0f;
  moe.router.scale = static_cast<float>(c.number_or("moe_routed_scaling_factor", 1.0, 0.0, 1e6));
  moe.shared_intermediate_size = c.require_int("shared_expert_intermediate_size");
  c.expect_string("moe_router_score_func", "sigmoid");
  c.expect_bool("moe_router_use_sigmoid", true);
  c.expect_bool("moe_apply_router_weight_on_input", false);
  moe.router_soft_cap =
      static_cast<float>(c.number_or("moe_router_logit_softcapping", 0.0, 0.0, 1e6));
  c.expect_number("decoder_sparse_step", 1);
  return moe;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  read_attention_bias(c, attention);
  c.expect_bool("qkv_bias", false);
  attention.qk_norm = QkNorm::kPerHead;
  attention.gate = read_gate(c);
  attention.gate_activation = Activation::kSoftplus;
  layer.mixer = share_mixer(attention);
  const MoeSpec moe = read_moe(c);
  spec.layers = make_layers(c, layer, moe, read_dense(c, num_layers));
  const int64_t window = read_window(c, 512);
  const std::vector<bool> sliding = read_sliding_layers(c, num_layers);
  const std::vector<int64_t> heads = read_heads_per_layer(c, num_layers, attention);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    attention.num_heads = heads[i];
    attention.window = sliding[i] ? window : 0;
    attention.rope =
        read_rope(c, {.head_dim = attention.head_dim,
                      .layer_type = sliding[i] ? "sliding_attention" : "full_attention"});
    spec.layers[i].mixer = share_mixer(attention);
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"mlp.shared_experts", "mlp.shared_expert"}});
}

// Hugging Face has the bias among the experts, MLX and GGUF have it in the gate.
std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  constexpr std::string_view kOwnBias = "mlp.experts.e_score_correction_bias";
  if (blocks::any_layer_has(spec, weights, kOwnBias)) options.names.correction_bias = kOwnBias;
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) {
  return {.renamed = {{"mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}},
          .plain_router = true};
}

}  // namespace

extern const Family family = {{"laguna"}, read_spec, names, create, mlx_names};

}  // namespace moeflux::laguna
