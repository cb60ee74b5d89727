// Laguna as GGUF files spell it: heads by block, rotary positions by kind of layer, gates whose
// rows say whether they are of heads or of their numbers.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_laguna {
namespace {

Json rope(GgufKeys& keys, const Json& c, bool sliding) {
  const int64_t head_dim = c["head_dim"];
  const double full_base = keys.number_or("rope.freq_base", 10000.0);
  const int64_t full_rotary = keys.int_or("rope.dimension_count", head_dim);
  const double base = sliding ? keys.number_or("rope.freq_base_swa", full_base) : full_base;
  const int64_t rotary =
      sliding ? keys.int_or("rope.dimension_count_swa", full_rotary) : full_rotary;
  Json own = {{"rope_type", "default"},
              {"rope_theta", base},
              {"partial_rotary_factor",
               static_cast<double>(rotary) / static_cast<double>(head_dim > 0 ? head_dim : 1)}};
  if (sliding) return own;
  Json scaling = read_gguf_rope_scaling(keys);
  if (scaling.is_null()) return own;
  scaling["rope_type"] = scaling["type"];
  scaling.erase("type");
  own.update(scaling);
  if (keys.has("rope.scaling.attn_factor")) {
    own["attention_factor"] = keys.require_number("rope.scaling.attn_factor");
  }
  return own;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "laguna";
  const std::vector<int64_t> heads = keys.of_blocks("attention.head_count");
  c["num_attention_heads"] = heads.empty() ? 1 : heads.front();
  c["num_attention_heads_per_layer"] =
      std::vector<int64_t>(heads.begin(), heads.begin() + keys.num_layers());
  c["num_key_value_heads"] = keys.require_int("attention.head_count_kv");
  c["head_dim"] = keys.require_int("attention.key_length");
  keys.expect_int("attention.value_length", c["head_dim"]);
  const int64_t window = keys.int_or("attention.sliding_window", 0);
  c["sliding_window"] = window;
  if (window > 0) {
    read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 0});
  } else {
    c["layer_types"] =
        std::vector<std::string>(static_cast<size_t>(keys.num_layers()), "full_attention");
  }
  c["rope_parameters"] = {{"full_attention", rope(keys, c, false)},
                          {"sliding_attention", rope(keys, c, true)}};
  const gguf::TensorInfo* gate = keys.tensor("blk.0.attn_gate.weight");
  if (gate == nullptr) gate = keys.tensor("blk.0.attn_g.weight");  // as Ollama has it
  const bool per_head =
      gate != nullptr && gate->shape.rank() == 2 && gate->shape[0] == c["num_attention_heads"];
  c["gating"] = per_head ? "per-head" : "per-element";
  c["moe_router_logit_softcapping"] = keys.number_or("router_logit_softcapping", 0.0);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["moe_routed_scaling_factor"] = c["routed_scaling_factor"];
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  c["shared_expert_intermediate_size"] = keys.require_int("expert_shared_feed_forward_length");
  keys.expect_int("expert_shared_count", 1);
  read_gguf_dense_layers(keys, c);
  const int64_t num_dense = c["first_k_dense_replace"];
  c.erase("first_k_dense_replace");
  c["mlp_layer_types"] = list_gguf_layers(
      keys, [&](size_t i) { return static_cast<int64_t>(i) < num_dense ? "dense" : "sparse"; });
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"laguna"},
    .config = config,
    .tensors = {{"attn_gate", "self_attn.g_proj"}, {"attn_g", "self_attn.g_proj"}}};

}  // namespace moeflux::gguf_laguna
