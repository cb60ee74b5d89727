// MiMo-V2-Flash: sliding layers with sinks and twice the key-value heads beside full ones, values
// narrower than keys, the mixture of DeepSeek-V3 without shared experts.
#include <cmath>
#include <string>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::mimo_v2_flash {
namespace {

// layer_types, or the original hybrid_layer_pattern of 0 (full) and 1 (sliding).
std::vector<bool> read_pattern(Config& c, int64_t num_layers) {
  if (!c.has("hybrid_layer_pattern") || c.has("layer_types")) {
    return read_sliding_layers(c, num_layers);
  }
  std::vector<bool> sliding;
  for (const int64_t kind : read_layer_ints(c, "hybrid_layer_pattern", num_layers)) {
    sliding.push_back(kind == 1);
  }
  return sliding;
}

// mlp_layer_types, or the original moe_layer_freq of 0 (dense) and 1 (experts) a layer.
std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  const Json* freq = c.find("moe_layer_freq");
  if (freq == nullptr || !freq->is_array() || c.has("mlp_layer_types")) {
    return read_dense_layers(c, num_layers, 1);
  }
  std::vector<bool> dense;
  for (const int64_t sparse : read_layer_ints(c, "moe_layer_freq", num_layers)) {
    dense.push_back(sparse == 0);
  }
  return dense;
}

// The publisher's sliding_window_size, which has precedence, counts the tokens before a token's
// own.
int64_t read_window(Config& c) {
  if (!c.has("sliding_window_size")) return c.require_int("sliding_window", {1, 1 << 30});
  c.ignore("sliding_window");
  return c.require_int("sliding_window_size", {0, 1 << 30}) + 1;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  const int64_t num_layers = read_num_layers(c);
  AttentionSpec full = read_heads(c, spec.hidden_size);
  full.v_head_dim = c.int_or("v_head_dim", full.head_dim, {1, 4096});
  full.value_scale = static_cast<float>(c.require_number("attention_value_scale", -1e3, 1e3));
  full.qkv_bias = c.bool_or("attention_bias", false);
  AttentionSpec sliding = full;
  sliding.num_kv_heads = c.int_or("swa_num_key_value_heads", 2 * full.num_kv_heads, {1, 4096});
  sliding.num_heads = c.int_or("swa_num_attention_heads", full.num_heads, {1, 4096});
  sliding.head_dim = c.int_or("swa_head_dim", full.head_dim, {1, 4096});
  sliding.v_head_dim = c.int_or("swa_v_head_dim", full.v_head_dim, {1, 4096});
  sliding.scale = 1.0f / std::sqrt(static_cast<float>(sliding.head_dim));
  sliding.window = read_window(c);
  sliding.sinks = c.bool_or("add_swa_attention_sink_bias", true);
  c.expect_bool("add_full_attention_sink_bias", false);
  full.rope = read_rope(c, {.head_dim = full.head_dim, .layer_type = "full_attention"});
  sliding.rope = read_rope(c, {.head_dim = sliding.head_dim,
                               .theta_key = "swa_rope_theta",
                               .layer_type = "sliding_attention"});
  MoeSpec moe = read_experts(c);
  read_noaux_tc(c, moe);
  const int64_t dense_size = c.require_int("intermediate_size");
  c.expect_number("n_shared_experts", 0);
  for (const std::string_view key : {"attention_chunk_size", "hybrid_block_size"}) c.ignore(key);
  spec.layers = make_layers({}, moe, read_dense(c, num_layers), dense_size);
  const std::vector<bool> pattern = read_pattern(c, num_layers);
  for (size_t i = 0; i < pattern.size(); ++i) {
    spec.layers[i].mixer = share_mixer(pattern[i] ? sliding : full);
  }
  // The first of three, each of which predicts one token further.
  LayerSpec draft;
  draft.mixer = share_mixer(sliding);
  draft.dense_intermediate_size = dense_size;
  read_draft_layer(c, spec, "num_nextn_predict_layers", draft);
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  scheme.renamed = {{"self_attn.sinks", "self_attn.attention_sink_bias"}};
  if (spec.draft_layers == 0) return scheme;
  const std::string draft = formatted("layers.{}", spec.num_layers() - 1);
  scheme.renamed.emplace_back(draft + ".post_attention_layernorm",
                              "mtp.layers.0.pre_mlp_layernorm");
  scheme.renamed.emplace_back(draft + ".shared_head.norm", "mtp.layers.0.final_layernorm");
  scheme.renamed.emplace_back(draft, "mtp.layers.0");
  return scheme;
}

MlxNames mlx_names(std::string_view) { return {.plain_router = true}; }

}  // namespace

extern const Family family = {{"mimo_v2_flash"}, read_spec, names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::mimo_v2_flash
