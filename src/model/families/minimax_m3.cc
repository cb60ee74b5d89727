// MiniMax-M3: attention over the blocks of keys that an index chooses for each group of query
// heads, norms that store w of (1 + w), clamped gated units in all networks.
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::minimax_m3 {
namespace {

// Ones and zeros, or names, for each layer.
std::vector<bool> read_flags(Config& c, Config& numbers, std::string_view number_key,
                             const LayerTypes& types, int64_t num_layers) {
  std::vector<bool> flags(static_cast<size_t>(num_layers));
  if (c.has(types.key)) {
    const std::vector<std::string> names = read_layer_types(c, num_layers, types);
    for (size_t i = 0; i < flags.size(); ++i) flags[i] = names[i] == types.usual;
    numbers.ignore(number_key);
    return flags;
  }
  const std::vector<int64_t> given = numbers.ints_or(number_key, {});
  if (static_cast<int64_t>(given.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument, formatted("{} has {} entries, num_hidden_layers is {}",
                                                  number_key, given.size(), num_layers));
    return flags;
  }
  for (size_t i = 0; i < flags.size(); ++i) flags[i] = given[i] != 0;
  return flags;
}

// In sparse_attention_config, as published, or beside the other keys.
KeyIndexSpec read_index(Config& c, Config& sparse, const AttentionSpec& attention) {
  const auto read = [&](std::string_view nested, std::string_view flat, IntRange range) {
    return sparse.has(nested) ? sparse.require_int(nested, range) : c.require_int(flat, range);
  };
  KeyIndexSpec index;
  index.num_heads = read("sparse_num_index_heads", "index_n_heads", {1, 4096});
  index.head_dim = read("sparse_index_dim", "index_head_dim", {1, 4096});
  index.unit = read("sparse_block_size", "index_block_size", {1, 1 << 16});
  index.selected = read("sparse_topk_blocks", "index_topk_blocks", {1, 1 << 16});
  // A token's own block is among them.
  index.recent = read("sparse_local_block", "index_local_blocks", {1, index.selected});
  index.groups = index.num_heads;
  index.rope = attention.rope;
  sparse.expect_number("sparse_init_block", 0);
  sparse.expect_string("sparse_score_type", "max");
  sparse.expect_bool("use_sparse_attention", true);
  sparse.ignore("sparse_disable_index_value");  // an index that made values as well
  if (attention.num_kv_heads % index.num_heads != 0) {
    c.fail(ErrorCode::kUnsupported,
           formatted("{} index heads choose for {} kv heads, expected a divisor", index.num_heads,
                     attention.num_kv_heads));
  }
  if (index.rope.rotary_dim > index.head_dim) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("an index head has {} columns, expected at least rotary_dim {}",
                     index.head_dim, index.rope.rotary_dim));
  }
  return index;
}

AttentionSpec read_attention(Config& c, int64_t hidden_size) {
  AttentionSpec attention = read_heads(c, hidden_size);
  attention.qk_norm = QkNorm::kPerHead;
  c.expect_bool("use_qk_norm", true);
  c.expect_string("qk_norm_type", "per_head");
  c.expect_bool("use_gemma_norm", true);
  c.expect_bool("attention_output_gate", false);
  const int64_t rotary_dim = c.int_or("rotary_dim", attention.head_dim, {2, attention.head_dim});
  attention.rope = read_rope(c, {.head_dim = attention.head_dim,
                                 .partial_rotary_factor = static_cast<double>(rotary_dim) /
                                                          static_cast<double>(attention.head_dim)});
  if (attention.rope.rotary_dim != rotary_dim) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("rotary_dim is {}, partial_rotary_factor makes it {}", rotary_dim,
                     attention.rope.rotary_dim));
  }
  return attention;
}

MoeSpec read_moe(Config& c, const GluOptions& glu) {
  MoeSpec moe = read_experts(c, "intermediate_size");
  c.assume("routed_scaling_factor", 2.0);
  read_noaux_tc(c, moe);
  moe.router.normalize_epsilon = 0.0f;
  c.expect_bool("use_routing_bias", true);
  const int64_t shared = c.int_or("n_shared_experts", 1, {0, 1024});
  moe.shared_intermediate_size =
      shared * c.int_or("shared_intermediate_size", moe.moe_intermediate_size);
  moe.glu = glu;
  return moe;
}

Result<ModelSpec> read_spec(Config& c) {
  const bool has_own_name = c.string_or("hidden_act", "silu") == "swigluoai";
  ModelSpec spec = read_trunk(c, has_own_name ? "swigluoai" : "silu");
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  const int64_t num_layers = read_num_layers(c);
  const AttentionSpec dense = read_attention(c, spec.hidden_size);
  Config sparse_keys = c.object("sparse_attention_config");
  AttentionSpec sparse = dense;
  sparse.index = read_index(c, sparse_keys, dense);
  const std::vector<bool> chooses =
      read_flags(c, sparse_keys, "sparse_attention_freq",
                 {"layer_types", "minimax_m3_sparse", "full_attention", 1}, num_layers);
  c.absorb(sparse_keys);
  const GluOptions glu{.alpha = static_cast<float>(c.number_or("swiglu_alpha", 1.702, 0.0, 1e3)),
                       .limit = static_cast<float>(c.number_or("swiglu_limit", 7.0, 1e-6, 1e6)),
                       .up_offset = 1.0f};
  const MoeSpec moe = read_moe(c, glu);
  const int64_t dense_size = c.require_int("dense_intermediate_size");
  const std::vector<bool> has_experts =
      read_flags(c, c, "moe_layer_freq", {"mlp_layer_types", "sparse", "dense", 1}, num_layers);
  for (const std::string_view key : {"router_jitter_noise", "mtp_transformer_layers"}) {
    c.ignore(key);
  }
  for (size_t i = 0; i < chooses.size(); ++i) {
    LayerSpec layer;
    layer.mixer = chooses[i] ? share_mixer(sparse) : share_mixer(dense);
    if (has_experts[i]) {
      layer.moe = moe;
    } else {
      layer.dense_intermediate_size = dense_size;
      layer.dense_glu = glu;
    }
    spec.layers.push_back(layer);
  }
  return finish_spec(c, std::move(spec));
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  // GGUF files have 1 + w as norms, and no other file this name.
  const bool is_gguf = blocks::any_layer_has(spec, weights, "mlp.expert_bias");
  options.norm_add = is_gguf ? 0.0f : 1.0f;
  if (is_gguf) options.names.correction_bias = "mlp.expert_bias";
  if (blocks::any_layer_has(spec, weights, "block_sparse_moe.gate.weight")) {
    options.names.moe = "block_sparse_moe";
    options.names.router = "block_sparse_moe.gate";
    options.names.correction_bias = "block_sparse_moe.e_score_correction_bias";
    options.names.shared = "block_sparse_moe.shared_experts";
  }
  return blocks::make_decoder(spec, weights, options);
}

}  // namespace

extern const Family family = {
    {"minimax_m3_vl", "minimax_m3_vl_text", "minimax_m3", "minimax_m3_text"},
    read_spec,
    usual_names,
    create};

}  // namespace moeflux::minimax_m3
