// Step-3.5-Flash as GGUF files spell it: heads, windows and limits by block. Frequencies of full
// layers come divided by the factors of rope_freqs.
#include <algorithm>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_step35 {
namespace {

/// The number that blocks of one kind have; they must agree.
int64_t of_kind(GgufKeys& keys, std::string_view key, const Json& types, std::string_view kind) {
  const std::vector<int64_t> all = keys.of_blocks(key);
  int64_t found = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != kind) continue;
    if (found != 0 && all[i] != found) {
      keys.fail(ErrorCode::kUnsupported,
                formatted("{} differs among layers of one kind", std::string(key)));
    }
    found = all[i];
  }
  return std::max<int64_t>(found, 1);
}

// Full layers turn half of what the key says, a whole head where it is absent, as in llama.cpp
// (src/models/step35.cpp). Its converter does not write the key.
void read_ropes(GgufKeys& keys, Json& c) {
  const int64_t head_dim = c["head_dim"];
  const double base = keys.number_or("rope.freq_base", 10000.0);
  const int64_t rotary = keys.int_or("rope.dimension_count", head_dim);
  const auto share = [&](int64_t dims) {
    return static_cast<double>(dims) / static_cast<double>(std::max<int64_t>(head_dim, 1));
  };
  Json full = {
      {"rope_type", "default"}, {"rope_theta", base}, {"partial_rotary_factor", share(rotary / 2)}};
  if (keys.tensor("rope_freqs.weight") != nullptr) {
    full["rope_type"] = "factors";
    full["frequency_factors"] = keys.read_floats("rope_freqs.weight");
  }
  c["rope_parameters"] = {
      {"full_attention", full},
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", keys.number_or("rope.freq_base_swa", base)},
        {"partial_rotary_factor", share(keys.int_or("rope.dimension_count_swa", rotary))}}}};
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "step3p5";
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 0});
  const Json types = c["layer_types"];  // a copy: keys are added below
  c["num_attention_heads"] = of_kind(keys, "attention.head_count", types, "full_attention");
  c["num_key_value_heads"] = of_kind(keys, "attention.head_count_kv", types, "full_attention");
  c["attention_other_setting"] = {
      {"num_attention_heads", of_kind(keys, "attention.head_count", types, "sliding_attention")},
      {"num_attention_groups",
       of_kind(keys, "attention.head_count_kv", types, "sliding_attention")}};
  c["head_dim"] = keys.require_int("attention.key_length");
  keys.expect_int("attention.value_length", c["head_dim"]);
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  read_ropes(keys, c);
  read_gguf_experts(keys, c);
  keys.expect_int("expert_gating_func", 2);
  c["norm_expert_weight"] = keys.bool_or("expert_weights_norm", true);
  c["moe_router_scaling_factor"] = read_gguf_weights_scale(keys);
  c["share_expert_dim"] = keys.require_int("expert_shared_feed_forward_length");
  keys.expect_int("moe_every_n_layers", 1);
  read_gguf_limits(keys, "swiglu_clamp_exp", c, "swiglu_limits");
  read_gguf_limits(keys, "swiglu_clamp_shexp", c, "swiglu_limits_shared");
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"step35"},
    .config = config,
    .tensors = {{"attn_gate", "self_attn.g_proj"},
                {"ffn_gate_inp", "mlp.gate.gate"},
                {"exp_probs_b.bias", "mlp.gate.router_bias"},
                {"ffn_gate_shexp", "mlp.share_expert.gate_proj"},
                {"ffn_up_shexp", "mlp.share_expert.up_proj"},
                {"ffn_down_shexp", "mlp.share_expert.down_proj"},
                {"rope_freqs", ""}}};

}  // namespace moeflux::gguf_step35
