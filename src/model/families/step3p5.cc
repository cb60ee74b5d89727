// Step-3.5-Flash and the text of Step-3.7-Flash: sliding and full attention with heads and
// positions of their own, gates of heads, sigmoid router with a bias that selects, gated units of
// which silu is limited. Norms are stored as w of (1 + w).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::step3p5 {
namespace {

std::vector<bool> read_sliding(Config& c, int64_t num_layers) {
  c.expect_present("layer_types");
  std::vector<bool> sliding;
  for (const Json& type : read_layer_entries(c, "layer_types", num_layers)) {
    if (type != "sliding_attention" && type != "full_attention") {
      c.fail(ErrorCode::kUnsupported,
             formatted("layer_types has {}, known are sliding_attention and full_attention",
                       json_excerpt(type)));
    }
    sliding.push_back(type == "sliding_attention");
  }
  sliding.resize(static_cast<size_t>(num_layers));
  return sliding;
}

// mlp_layer_types, or the original moe_layers_enum of layers with experts ("3,4,5").
std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  if (c.has("mlp_layer_types") || !c.has("moe_layers_enum")) {
    return read_dense_layers(c, num_layers, 3);
  }
  std::vector<bool> dense(static_cast<size_t>(num_layers), true);
  const std::string list = c.string_or("moe_layers_enum", "");
  for (const char* at = list.data(); at < list.data() + list.size(); ++at) {
    int64_t layer = -1;
    const auto [end, problem] = std::from_chars(at, list.data() + list.size(), layer);
    if (problem != std::errc() || layer < 0 || (*end != '\0' && *end != ',')) {
      c.fail(
          ErrorCode::kInvalidArgument,
          formatted("moe_layers_enum is \"{}\", expected numbers of layers between commas", list));
      break;
    }
    if (layer < num_layers) dense[static_cast<size_t>(layer)] = false;
    at = end;
  }
  return dense;
}

// The original has a base and a share of each layer, and scales only some kinds of layers.
RopeSpec read_own_rope(Config& c, const AttentionSpec& attention, const std::vector<Json>& thetas,
                       const std::vector<Json>& shares, size_t layer, bool is_scaled) {
  Json own = Json::object();
  own["rope_theta"] = thetas.empty() ? Json(1e4) : thetas[layer];
  if (!shares.empty()) own["partial_rotary_factor"] = shares[layer];
  const Json* scaling = c.find("rope_scaling");
  if (is_scaled && scaling != nullptr) own["rope_scaling"] = *scaling;
  Config r(std::move(own), "config.json");
  const RopeSpec rope = read_rope(r, {.head_dim = attention.head_dim});
  c.absorb(r);
  return rope;
}

std::vector<RopeSpec> read_ropes(Config& c, const AttentionSpec& attention,
                                 const std::vector<bool>& sliding) {
  const auto num_layers = static_cast<int64_t>(sliding.size());
  std::vector<RopeSpec> ropes;
  if (c.has("rope_parameters")) {
    for (const bool is_sliding : sliding) {
      ropes.push_back(
          read_rope(c, {.head_dim = attention.head_dim,
                        .layer_type = is_sliding ? "sliding_attention" : "full_attention"}));
    }
    return ropes;
  }
  const Json* theta = c.find("rope_theta");
  std::vector<Json> thetas;
  if (theta != nullptr && theta->is_number()) {
    thetas.assign(sliding.size(), *theta);
    c.ignore("rope_theta");
  } else {
    thetas = read_layer_entries(c, "rope_theta", num_layers);
  }
  const std::vector<Json> shares = read_layer_entries(c, "partial_rotary_factors", num_layers);
  const Json* only = c.find("yarn_only_types");
  for (const std::string_view key : {"rope_scaling", "yarn_only_types"}) c.ignore(key);
  for (size_t i = 0; i < sliding.size(); ++i) {
    const std::string type = sliding[i] ? "sliding_attention" : "full_attention";
    bool is_scaled = only == nullptr || !only->is_array() || only->empty();
    if (!is_scaled) is_scaled = std::find(only->begin(), only->end(), type) != only->end();
    ropes.push_back(read_own_rope(c, attention, thetas, shares, i, is_scaled));
  }
  return ropes;
}

AttentionSpec read_sliding_heads(Config& c, AttentionSpec attention) {
  Config other = c.object("attention_other_setting");
  attention.num_heads = other.int_or("num_attention_heads", attention.num_heads, {1, 4096});
  attention.num_kv_heads = other.int_or("num_attention_groups", attention.num_kv_heads, {1, 4096});
  other.expect_number("head_dim", static_cast<double>(attention.head_dim));
  other.expect_number("true_head_dim", static_cast<double>(attention.head_dim));
  other.expect_string("attention_type", "sliding_attention");
  c.absorb(other);
  attention.num_heads = c.int_or("num_sliding_attention_heads", attention.num_heads, {1, 4096});
  attention.window = c.require_int("sliding_window", {1, 1 << 30});
  return attention;
}

AttentionSpec read_full_heads(Config& c, int64_t hidden_size) {
  AttentionSpec attention = read_heads(c, hidden_size);
  attention.num_kv_heads = c.int_or("num_attention_groups", attention.num_kv_heads, {1, 4096});
  for (const std::string_view key : {"attention_bias", "mlp_bias", "sink"}) {
    c.expect_bool(key, false);
  }
  for (const std::string_view key : {"use_head_wise_attn_gate", "use_qk_norm", "zero_centered"}) {
    c.expect_bool(key, true);
  }
  attention.qk_norm = QkNorm::kPerHead;
  attention.gate = HeadGate::kPerHead;
  const double width =
      c.number_or("query_pre_attn_scalar", static_cast<double>(attention.head_dim), 1e-3, 1e6);
  attention.scale = static_cast<float>(1.0 / std::sqrt(width));
  return attention;
}

MoeSpec read_moe(Config& c) {
  MoeSpec moe = read_experts(c, {.experts = "moe_num_experts", .chosen = "moe_top_k"});
  c.expect_bool("use_moe_router_bias", true);
  c.expect_bool("norm_expert_weight", true);
  c.expect_string("moe_router_activation", "sigmoid");
  c.ignore("need_fp32_gate");
  moe.correction_bias = true;
  moe.router.score = RouterScore::kSigmoid;
  moe.router.scale = static_cast<float>(c.number_or("moe_router_scaling_factor", 1.0, 0.0, 1e6));
  moe.shared_intermediate_size = c.require_int("share_expert_dim");
  return moe;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec full = read_full_heads(c, spec.hidden_size);
  AttentionSpec sliding_heads = read_sliding_heads(c, full);
  const std::vector<bool> sliding = read_sliding(c, num_layers);
  const std::vector<RopeSpec> ropes = read_ropes(c, full, sliding);
  LayerSpec layer;
  layer.mixer = share_mixer(full);
  spec.layers = make_layers(c, layer, read_moe(c), read_dense(c, num_layers));
  const std::vector<GluOptions> limits = read_capped_units(c, "swiglu_limits", num_layers);
  const std::vector<GluOptions> shared = read_capped_units(c, "swiglu_limits_shared", num_layers);
  for (const std::string_view key : {"mtp_layer_types", "mtp_mlp_layer_types"}) c.ignore(key);
  Config per_layer = c.object("per_layer_config");  // as transformers saves it
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec attention = sliding[i] ? sliding_heads : full;
    Config own = object_of_layer(per_layer, i);
    attention.num_heads = own.int_or("num_attention_heads", attention.num_heads, {1, 4096});
    per_layer.absorb(own);
    if (attention.num_heads % attention.num_kv_heads != 0) {
      c.fail(ErrorCode::kInvalidArgument,
             formatted("num_attention_groups {} do not divide {} heads", attention.num_kv_heads,
                       attention.num_heads));
    }
    attention.rope = ropes[i];
    spec.layers[i].mixer = share_mixer(attention);
    spec.layers[i].moe.glu = limits[i];
    spec.layers[i].moe.shared_glu = shared[i];
    spec.layers[i].dense_glu = shared[i];
  }
  c.absorb(per_layer);
  return finish_spec(c, std::move(spec));
}

// MLX and GGUF files have a network's parts together, and 1 + w as norms.
std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  const bool original = !blocks::any_layer_has(spec, weights, "mlp.gate.gate.weight");
  options.norm_add = original ? 1.0f : 0.0f;
  options.names.moe = original ? "moe" : "mlp";
  options.names.router = original ? "moe.gate" : "mlp.gate.gate";
  options.names.correction_bias = original ? "moe.router_bias" : "mlp.gate.router_bias";
  options.names.shared = original ? "share_expert" : "mlp.share_expert";
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) {
  return {.renamed = {{"moe.gate", "mlp.gate.gate"},
                      {"moe.router_bias", "mlp.gate.router_bias"},
                      {"moe", "mlp"},
                      {"share_expert", "mlp.share_expert"},
                      {"mlp.mlp.share_expert", "mlp.share_expert"}},
          .norms_hold_one = true};
}

}  // namespace

extern const Family family = {{"step3p5", "step3p7"}, read_spec, usual_names, create, mlx_names};

}  // namespace moeflux::step3p5
