// MiMo-V2-Flash as GGUF files spell it: key-value heads and windows by block. Blocks without a
// router have no experts: no key says which they are.
#include <algorithm>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_mimo2 {
namespace {

constexpr std::string_view kKvHeads = "attention.head_count_kv";

void read_ropes(GgufKeys& keys, Json& c) {
  c["rope_theta"] = keys.number_or("rope.freq_base", 10000.0);
  c["swa_rope_theta"] = keys.number_or("rope.freq_base_swa", 10000.0);
  const int64_t head_dim = c["head_dim"];
  c["partial_rotary_factor"] = static_cast<double>(keys.int_or("rope.dimension_count", head_dim)) /
                               static_cast<double>(std::max<int64_t>(head_dim, 1));
  expect_no_gguf_rope_scaling(keys);
}

void read_dense_layers(GgufKeys& keys, Json& c) {
  c["mlp_layer_types"] = list_gguf_layers(keys, [&](size_t i) {
    const bool has_router = keys.tensor(formatted("blk.{}.ffn_gate_inp.weight", i)) != nullptr;
    return has_router ? "sparse" : "dense";
  });
  c["intermediate_size"] = keys.require_int("feed_forward_length");
  keys.ignore("leading_dense_block_count");  // says the same where a file has it
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "mimo_v2_flash";
  const std::vector<int64_t> sliding = keys.of_blocks("attention.sliding_window_pattern");
  const int64_t head_dim = keys.require_int("attention.key_length");
  c["num_attention_heads"] = keys.require_int("attention.head_count");
  c["num_key_value_heads"] = read_gguf_heads(keys, sliding, {kKvHeads, false});
  c["swa_num_key_value_heads"] = read_gguf_heads(keys, sliding, {kKvHeads, true});
  c["head_dim"] = head_dim;
  c["v_head_dim"] = keys.int_or("attention.value_length", head_dim);
  c["attention_value_scale"] = keys.number_or("attention.value_scale", 1.0);
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  read_ropes(keys, c);
  c["add_swa_attention_sink_bias"] = keys.any_block_has("attn_sinks.weight");
  c["layer_types"] = list_gguf_layers(
      keys, [&](size_t i) { return sliding[i] != 0 ? "sliding_attention" : "full_attention"; });
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  read_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"mimo2"},
    .config = config,
    .tensors = {{"layer_output_norm", "shared_head.norm"}}};  // of the layer that predicts

}  // namespace moeflux::gguf_mimo2
