#include "model/family/spec_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "model/config/config_keys.h"

namespace moeflux {
namespace {

void expect_multiple(Config& c, std::string_view a_name, int64_t a, std::string_view b_name,
                     int64_t b) {
  if (a % b == 0) return;
  c.fail(ErrorCode::kInvalidArgument,
         formatted("{} {} is not a multiple of {} {}", a_name, a, b_name, b));
}

// One number under any of several names, which must not contradict each other.
int64_t require_any(Config& c, std::initializer_list<std::string_view> keys, IntRange range) {
  std::string_view found;
  int64_t value = 0;
  for (const std::string_view key : keys) {
    if (!c.has(key)) continue;
    const int64_t own = c.require_int(key, range);
    if (found.empty()) {
      found = key;
      value = own;
    } else if (own != value) {
      c.fail(ErrorCode::kInvalidArgument,
             formatted("{} is {}, its synonym {} is {}", found, value, key, own));
    }
  }
  // Reports the usual name as missing.
  return found.empty() ? c.require_int(*keys.begin(), range) : value;
}

// The name in use of one that has several; the first where none is.
std::string_view key_of(const Config& c, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (c.has(key)) return key;
  }
  return *keys.begin();
}

// The epsilon of norms under any of the names in use.
std::string_view norm_eps_key(const Config& c) {
  return key_of(
      c, {"rms_norm_eps", "layernorm_epsilon", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"});
}

// Keys that would change what the spec computes are refused, others kept for whoever loads it.
void judge_unread_keys(Config& c, ModelSpec& spec) {
  for (const UnreadKey& unread : c.unread()) {
    switch (meaning_of(spec, unread.key, unread.value)) {
      case KeyMeaning::kUnknown:
        spec.unread_keys.push_back(unread.name);
        break;
      case KeyMeaning::kNeutral:
        break;
      case KeyMeaning::kChanges:
        c.fail(ErrorCode::kUnsupported,
               formatted("{} is {}, which is not supported for models of type {}", unread.name,
                         json_excerpt(unread.value), c.model_type()));
        break;
    }
  }
}

}  // namespace

ModelSpec read_trunk(Config& c, std::string_view activation) {
  ModelSpec spec;
  spec.model_type = c.model_type();
  spec.hidden_size = c.require_int("hidden_size");
  spec.vocab_size = c.require_int("vocab_size");
  spec.max_position_embeddings = c.int_or("max_position_embeddings", 262144, {1, 1 << 30});
  spec.rms_norm_eps = static_cast<float>(c.require_number(norm_eps_key(c), 0.0, 1.0));
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", false);
  c.expect_string("hidden_act", activation);
  return spec;
}

int64_t read_num_layers(Config& c) { return c.require_int("num_hidden_layers", {1, 4096}); }

AttentionSpec read_heads(Config& c, int64_t hidden_size) {
  AttentionSpec spec;
  spec.num_heads = c.require_int("num_attention_heads", {1, 4096});
  spec.num_kv_heads = c.int_or("num_key_value_heads", spec.num_heads, {1, 4096});
  expect_multiple(c, "num_attention_heads", spec.num_heads, "num_key_value_heads",
                  spec.num_kv_heads);
  if (!c.has("head_dim")) {
    expect_multiple(c, "hidden_size", hidden_size, "num_attention_heads", spec.num_heads);
  }
  spec.head_dim =
      c.int_or("head_dim", std::max<int64_t>(1, hidden_size / spec.num_heads), {1, 4096});
  spec.v_head_dim = spec.head_dim;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  return spec;
}

void read_attention_bias(Config& c, AttentionSpec& attention) {
  attention.qkv_bias = c.bool_or("attention_bias", false);
  attention.o_bias = c.bool_or("attention_out_bias", attention.qkv_bias);
}

namespace {

LatentAttentionSpec read_latent_widths(Config& c, int64_t rope_dim_min) {
  LatentAttentionSpec spec;
  spec.num_heads = c.require_int("num_attention_heads", {1, 4096});
  spec.q_lora_rank = c.int_or("q_lora_rank", 0, {0, 1 << 20});
  spec.kv_lora_rank = c.require_int("kv_lora_rank", {1, 1 << 20});
  spec.nope_dim = c.require_int("qk_nope_head_dim", {1, 4096});
  spec.rope_dim = c.require_int("qk_rope_head_dim", {rope_dim_min, 4096});
  spec.v_dim = c.require_int("v_head_dim", {1, 4096});
  for (const std::string_view key :
       {"head_dim", "qk_head_dim", "q_head_dim", "num_key_value_heads"}) {
    c.ignore(key);  // follow from the others; configs disagree about what they mean here
  }
  spec.bias = c.bool_or("attention_bias", false);
  return spec;
}

}  // namespace

LatentAttentionSpec read_latent_attention(Config& c, const LatentRope& rope) {
  LatentAttentionSpec spec = read_latent_widths(c, 2);
  const int64_t wider = rope.wider > 0 ? rope.wider : spec.nope_dim + spec.rope_dim;
  spec.rope = read_rope(
      c, {.head_dim = spec.rope_dim,
          .interleaved = c.bool_or("rope_interleave", rope.interleaved),
          .share_of_wider = static_cast<double>(spec.rope_dim) / static_cast<double>(wider),
          .scales_queries = rope.scales_queries,
          .layer_type = rope.layer_type});
  const double m = spec.rope.softmax_mscale;
  spec.scale =
      static_cast<float>(m * m / std::sqrt(static_cast<double>(spec.nope_dim + spec.rope_dim)));
  return spec;
}

LatentAttentionSpec read_latent_attention_without_rope(Config& c) {
  LatentAttentionSpec spec = read_latent_widths(c, 0);
  if (c.has("rope_theta") || c.has("rope_parameters") || c.has("rope_scaling")) {
    (void)read_rope(c, {.head_dim = std::max<int64_t>(2, spec.rope_dim)});
  }
  spec.scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.nope_dim + spec.rope_dim)));
  // Turns of nothing leave every bit as it is.
  spec.rope.rotary_dim = spec.rope_dim;
  spec.rope.inverse_frequencies.assign(static_cast<size_t>(spec.rope_dim / 2), 0.0f);
  return spec;
}

std::vector<bool> read_indexed_layers(Config& c, int64_t num_layers, int64_t usual_distance) {
  const int64_t distance = c.int_or("index_topk_freq", usual_distance, {1, 4096});
  const int64_t offset = c.int_or("index_skip_topk_offset", 2, {0, 4096});
  std::vector<bool> indexed;
  for (int64_t i = 0; i < num_layers; ++i) {
    indexed.push_back(std::max<int64_t>(i - offset + 1, 0) % distance == 0);
  }
  if (c.has("index_topk_pattern")) {
    const std::string pattern = c.string_or("index_topk_pattern", "");
    indexed.clear();
    for (const char kind : pattern) indexed.push_back(kind == 'F');
    if (static_cast<int64_t>(pattern.size()) != num_layers ||
        pattern.find_first_not_of("FS") != std::string::npos) {
      c.fail(ErrorCode::kInvalidArgument,
             formatted("index_topk_pattern is \"{}\", expected F or S for each of {} layers",
                       pattern, num_layers));
      indexed.resize(static_cast<size_t>(num_layers));
    }
  }
  if (c.has("indexer_types")) {
    const std::vector<std::string> types =
        read_layer_types(c, num_layers, {"indexer_types", "full", "shared", num_layers + 1});
    for (size_t i = 0; i < indexed.size(); ++i) indexed[i] = types[i] == "full";
  }
  if (!indexed.front()) {
    c.fail(ErrorCode::kInvalidArgument,
           "the first layer has no index, and there is no earlier choice to share");
  }
  return indexed;
}

KeyIndexSpec read_key_index(Config& c, const LatentAttentionSpec& attention, bool interleaved) {
  KeyIndexSpec index;
  index.num_heads = c.require_int("index_n_heads", {1, 4096});
  index.head_dim = c.require_int("index_head_dim", {1, 4096});
  index.selected = c.require_int("index_topk", {1, 1 << 20});
  index.rope = attention.rope;
  index.rope.interleaved = interleaved;
  if (index.rope.rotary_dim > index.head_dim) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("index_head_dim is {}, expected at least qk_rope_head_dim {}", index.head_dim,
                     index.rope.rotary_dim));
  }
  c.ignore("index_share_for_mtp_iteration");
  return index;
}

void expect_no_time_step_limit(Config& c) {
  constexpr std::string_view kKey = "time_step_limit";
  c.ignore(kKey);
  if (!c.has(kKey)) return;
  const Json& limits = *c.find(kKey);
  const bool is_none = limits.is_array() && limits.size() == 2 && limits[0].is_number() &&
                       limits[0].get<double>() == 0.0 &&
                       limits[1] == Json{{"__float__", "Infinity"}};
  if (is_none) return;
  c.fail(ErrorCode::kUnsupported,
         formatted("{} is {}, only from 0 to infinity is supported", kKey, json_excerpt(limits)));
}

GatedDeltaSpec read_gated_delta(Config& c) {
  GatedDeltaSpec spec;
  spec.key_heads = c.require_int("linear_num_key_heads", {1, 4096});
  spec.value_heads = c.require_int("linear_num_value_heads", {1, 4096});
  spec.key_dim = c.require_int("linear_key_head_dim", {1, 4096});
  spec.value_dim = c.require_int("linear_value_head_dim", {1, 4096});
  spec.conv_taps = c.require_int("linear_conv_kernel_dim", {2, 64});
  expect_multiple(c, "linear_num_value_heads", spec.value_heads, "linear_num_key_heads",
                  spec.key_heads);
  return spec;
}

MoeSpec read_experts(Config& c, std::string_view width_key) {
  return read_experts(c, ExpertKeys{.width = width_key});
}

MoeSpec read_experts(Config& c, const ExpertKeys& keys) {
  MoeSpec moe;
  moe.num_experts = require_any(
      c, {keys.experts, "num_experts", "num_local_experts", "n_routed_experts"}, {1, 65536});
  moe.experts_per_token = require_any(c,
                                      {keys.chosen, "num_experts_per_tok", "experts_per_token",
                                       "num_experts_per_token", "top_k_experts"},
                                      {1, 1024});
  moe.moe_intermediate_size = c.require_int(keys.width);
  if (moe.experts_per_token > moe.num_experts) {
    c.fail(ErrorCode::kInvalidArgument, formatted("num_experts_per_tok {} exceeds num_experts {}",
                                                  moe.experts_per_token, moe.num_experts));
  }
  return moe;
}

void read_noaux_tc(Config& c, MoeSpec& moe) {
  for (const std::string_view key :
       {"scoring_func", "score_function", "moe_router_activation_func"}) {
    c.expect_string(key, "sigmoid");
  }
  c.expect_string("topk_method", "noaux_tc");
  moe.correction_bias = true;
  moe.router.score = RouterScore::kSigmoid;
  moe.router.group_score = GroupScore::kTopTwoSum;
  moe.router.num_groups = c.int_or(key_of(c, {"n_group", "num_expert_group"}), 1, {1, 65536});
  moe.router.groups_kept = c.int_or("topk_group", 1, {1, 65536});
  moe.router.normalize = c.bool_or(key_of(c, {"norm_topk_prob", "moe_renormalize"}), true);
  moe.router.normalize_epsilon = 1e-20f;
  moe.router.scale = static_cast<float>(c.number_or("routed_scaling_factor", 1.0, 0.0, 1e6));
  expect_multiple(c, "n_routed_experts", moe.num_experts, "n_group", moe.router.num_groups);
  if (moe.router.groups_kept > moe.router.num_groups) {
    c.fail(ErrorCode::kInvalidArgument, formatted("topk_group {} exceeds n_group {}",
                                                  moe.router.groups_kept, moe.router.num_groups));
  }
}

std::vector<std::string> read_layer_types(Config& c, int64_t num_layers, const LayerTypes& t) {
  std::vector<std::string> types;
  if (c.has(t.key)) {
    types = c.require_strings(t.key);
  } else {
    c.ignore(t.key);
    for (int64_t i = 1; i <= num_layers; ++i) {
      types.push_back(i % t.interval == 0 ? t.periodic : t.usual);
    }
  }
  if (static_cast<int64_t>(types.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument, formatted("{} has {} entries, num_hidden_layers is {}",
                                                  t.key, types.size(), num_layers));
    types.resize(static_cast<size_t>(num_layers), t.usual);
  }
  for (const std::string& type : types) {
    if (type != t.usual && type != t.periodic) {
      c.fail(ErrorCode::kUnsupported,
             formatted("{} has \"{}\", known are {} and {}", t.key, type, t.usual, t.periodic));
    }
  }
  return types;
}

std::vector<int64_t> read_layer_ints(Config& c, std::string_view key, int64_t num_layers) {
  std::vector<int64_t> numbers = c.ints_or(key, {});
  if (static_cast<int64_t>(numbers.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument, formatted("{} has {} entries, num_hidden_layers is {}", key,
                                                  numbers.size(), num_layers));
    numbers.resize(static_cast<size_t>(num_layers));
  }
  return numbers;
}

std::vector<Json> read_layer_entries(Config& c, std::string_view key, int64_t num_layers) {
  const Json* list = c.find(key);
  c.ignore(key);
  if (list == nullptr || *list == Json::array()) return {};
  std::vector<Json> entries;
  if (list->is_array()) entries.assign(list->begin(), list->end());
  if (static_cast<int64_t>(entries.size()) < num_layers) {
    c.fail(ErrorCode::kInvalidArgument, formatted("{} has {} entries, num_hidden_layers is {}", key,
                                                  entries.size(), num_layers));
  }
  entries.resize(static_cast<size_t>(num_layers));
  return entries;
}

std::vector<GluOptions> read_capped_units(Config& c, std::string_view key, int64_t num_layers) {
  std::vector<GluOptions> units(static_cast<size_t>(num_layers));
  const std::vector<Json> limits = read_layer_entries(c, key, num_layers);
  for (size_t i = 0; i < limits.size(); ++i) {
    if (limits[i].is_null() || limits[i] == 0) continue;
    if (!limits[i].is_number() || limits[i].get<double>() < 0.0) {
      c.fail(ErrorCode::kInvalidArgument,
             formatted("{} has {}, expected positive numbers", key, json_excerpt(limits[i])));
      continue;
    }
    units[i] = {.activation = Activation::kCappedSilu, .limit = limits[i].get<float>()};
  }
  return units;
}

void mark_listed_layers(Config& c, std::string_view key, std::vector<bool>& layers,
                        std::vector<int64_t> absent) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  for (const int64_t layer : c.ints_or(key, std::move(absent))) {
    if (layer >= 0 && layer < num_layers) layers[static_cast<size_t>(layer)] = true;
  }
}

Config object_of_layer(Config& per_layer, size_t i) {
  for (const std::string& padded : {formatted("{:02}", i), formatted("{:03}", i)}) {
    if (per_layer.has(padded)) return per_layer.object(padded);
  }
  return per_layer.object(formatted("{}", i));
}

std::vector<bool> read_dense_layers(Config& c, int64_t num_layers, int64_t usual) {
  std::vector<bool> dense(static_cast<size_t>(num_layers), false);
  const int64_t first_dense = c.int_or("first_k_dense_replace", usual, {0, 4096});
  c.expect_number("moe_layer_freq", 1);
  if (c.has("mlp_layer_types")) {
    const std::vector<std::string> types =
        read_layer_types(c, num_layers, {"mlp_layer_types", "sparse", "dense", 1});
    for (size_t i = 0; i < dense.size(); ++i) dense[i] = types[i] == "dense";
    return dense;
  }
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = static_cast<int64_t>(i) < first_dense;
  return dense;
}

void read_shared_experts(Config& c, MoeSpec& moe, int64_t usual) {
  const bool is_said = c.mentions("n_shared_experts") || c.mentions("num_shared_experts");
  const int64_t count = c.int_or(key_of(c, {"n_shared_experts", "num_shared_experts"}),
                                 is_said ? 0 : usual, {0, 1024});
  moe.shared_intermediate_size = moe.moe_intermediate_size * count;
}

void read_dense_network(Config& c, LayerSpec& layer) {
  layer.dense_intermediate_size = c.require_int("intermediate_size");
  layer.dense_bias = c.bool_or("mlp_bias", false);
}

std::vector<LayerSpec> make_layers(Config& c, LayerSpec layer, const MoeSpec& moe,
                                   const std::vector<bool>& dense) {
  const bool has_dense = std::find(dense.begin(), dense.end(), true) != dense.end();
  const int64_t dense_size =
      has_dense ? c.require_int("intermediate_size") : c.int_or("intermediate_size", 1);
  return make_layers(std::move(layer), moe, dense, dense_size);
}

std::vector<LayerSpec> make_layers(LayerSpec layer, const MoeSpec& moe,
                                   const std::vector<bool>& dense, int64_t dense_size) {
  std::vector<LayerSpec> layers;
  for (const bool is_dense : dense) {
    layer.moe = is_dense ? MoeSpec{} : moe;
    layer.dense_intermediate_size = is_dense ? dense_size : 0;
    layers.push_back(layer);
  }
  return layers;
}

std::vector<bool> read_sliding_layers(Config& c, int64_t num_layers) {
  c.expect_present("layer_types");
  const std::vector<std::string> types = read_layer_types(
      c, num_layers, {"layer_types", "sliding_attention", "full_attention", num_layers + 1});
  std::vector<bool> sliding;
  for (const std::string& type : types) sliding.push_back(type == "sliding_attention");
  return sliding;
}

std::vector<bool> read_sliding_pattern(Config& c, int64_t num_layers, int64_t interval) {
  if (c.has("layer_types")) return read_sliding_layers(c, num_layers);
  std::vector<bool> sliding;
  for (int64_t i = 1; i <= num_layers; ++i) sliding.push_back(i % interval != 0);
  return sliding;
}

RopeByWindow read_rope_by_window(Config& c, int64_t head_dim, const RopeBases& bases) {
  constexpr std::string_view kFull = "full_attention";
  constexpr std::string_view kSliding = "sliding_attention";
  RopeByWindow rope;
  const Json* parameters = c.find("rope_parameters");
  if (parameters != nullptr && (parameters->contains(kFull) || parameters->contains(kSliding))) {
    if (!bases.local_theta_key.empty()) c.ignore(bases.local_theta_key);
    c.assume("rope_theta", bases.theta);
    rope.full = read_rope(c, {.head_dim = head_dim, .layer_type = kFull});
    rope.sliding = read_rope(c, {.head_dim = head_dim, .layer_type = kSliding});
    return rope;
  }
  c.assume("rope_theta", bases.theta);
  rope.full = read_rope(c, {.head_dim = head_dim});
  const double theta = bases.local_theta_key.empty()
                           ? bases.local_theta
                           : c.number_or(bases.local_theta_key, bases.local_theta, 1.0, 1e12);
  rope.sliding.rotary_dim = head_dim;
  rope.sliding.interleaved = rope.full.interleaved;
  rope.sliding.inverse_frequencies = default_frequencies(theta, head_dim);
  return rope;
}

std::vector<LayerSpec> layers_by_window(LayerSpec layer, AttentionSpec attention,
                                        const RopeByWindow& rope, const std::vector<bool>& sliding,
                                        int64_t window) {
  attention.rope = rope.full;
  const auto full = share_mixer(attention);
  attention.rope = rope.sliding;
  attention.window = window;
  const auto slides = share_mixer(std::move(attention));
  std::vector<LayerSpec> layers;
  for (const bool is_sliding : sliding) {
    layer.mixer = is_sliding ? slides : full;
    layers.push_back(layer);
  }
  return layers;
}

void read_draft_layer(Config& c, ModelSpec& spec, std::string_view key, LayerSpec layer) {
  const int64_t count = c.int_or(key, 1, {0, 64});  // some publishers leave it out
  if (!c.use().draft_layer) return;
  if (count == 0) {
    c.fail(ErrorCode::kUnsupported,
           formatted("{} is 0, expected an MTP layer for --draft-mtp", key));
    return;
  }
  spec.layers.push_back(std::move(layer));
  spec.draft_layers = 1;
}

Result<ModelSpec> finish_spec(Config& c, ModelSpec spec) {
  if (c.use().draft_layer && spec.draft_layers == 0) {
    c.fail(ErrorCode::kUnsupported,
           formatted("MTP layers of models of type {} are not supported", c.model_type()));
  }
  MF_RETURN_IF_ERROR(c.status());
  judge_unread_keys(c, spec);
  MF_RETURN_IF_ERROR(c.status());
  return spec;
}

float zero_centred_norm_add(const WeightStore& weights, int64_t num_layers) {
  for (int64_t i = 0; i < num_layers; ++i) {
    const TensorEntry* conv = weights.find(formatted("layers.{}.linear_attn.conv1d.weight", i));
    if (conv != nullptr && conv->shape.rank() == 3) return conv->shape.back() != 1 ? 1.0f : 0.0f;
  }
  return weights.has("layers.0.mlp.switch_mlp.gate_proj.weight") ? 0.0f : 1.0f;
}

std::vector<std::string> usual_prefixes() {
  return {"language_model.model.",
          "model.language_model.",
          "model.",
          "language_model.",
          "model.text_model.",
          "text_model.",
          "llm.model.",
          "llm.",
          ""};
}

}  // namespace moeflux
