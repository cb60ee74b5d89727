// Gemma 4 as GGUF files spell it. The tensor rope_freqs says which pairs full attention rotates: 1
// where they do, a huge divisor where they do not.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_gemma4 {
namespace {

constexpr float kNeverRotates = 1e20f;  // files have 1e30

Json full_rope(GgufKeys& keys) {
  Json rope = {{"rope_theta", keys.number_or("rope.freq_base", 10000.0)}};
  if (keys.tensor("rope_freqs.weight") == nullptr) return rope;
  const std::vector<float> divisors = keys.read_floats("rope_freqs.weight");
  const auto rotating =
      std::find_if(divisors.begin(), divisors.end(), [](float divisor) { return divisor != 1.0f; });
  if (!std::all_of(rotating, divisors.end(), [](float d) { return d >= kNeverRotates; })) {
    keys.fail(ErrorCode::kUnsupported,
              "rope_freqs.weight has other divisors than 1 and, behind them, huge ones");
  }
  rope["rope_type"] = "proportional";
  rope["partial_rotary_factor"] = static_cast<double>(rotating - divisors.begin()) /
                                  static_cast<double>(std::max<size_t>(divisors.size(), 1));
  return rope;
}

void read_layers(GgufKeys& keys, Json& c) {
  const std::vector<int64_t> sliding = keys.of_blocks("attention.sliding_window_pattern");
  const std::vector<int64_t> kv_heads = keys.of_blocks("attention.head_count_kv");
  const int64_t full_dim = keys.require_int("attention.key_length");
  const int64_t sliding_dim = keys.int_or("attention.key_length_swa", full_dim);
  keys.expect_int("attention.value_length", full_dim);
  keys.expect_int("attention.value_length_swa", sliding_dim);
  keys.expect_int("rope.dimension_count", full_dim);  // whole heads
  keys.expect_int("rope.dimension_count_swa", sliding_dim);
  c["head_dim"] = sliding_dim;
  c["num_key_value_heads"] = *std::max_element(kv_heads.begin(), kv_heads.end());
  Json types = Json::array();
  Json per_layer = Json::object();
  bool keys_are_values = false;
  // The last ones have keys and values of others, and no matrices of them.
  const int64_t num_own = keys.num_layers() - keys.int_or("attention.shared_kv_layers", 0);
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    const bool slides = sliding[static_cast<size_t>(i)] != 0;
    types.push_back(slides ? "sliding_attention" : "full_attention");
    per_layer[std::to_string(i)] = {{"head_dim", slides ? sliding_dim : full_dim},
                                    {"num_key_value_heads", kv_heads[static_cast<size_t>(i)]}};
    keys_are_values =
        keys_are_values ||
        (!slides && i < num_own && keys.tensor(formatted("blk.{}.attn_v.weight", i)) == nullptr &&
         keys.tensor(formatted("blk.{}.attn_qkv.weight", i)) == nullptr);
  }
  c["layer_types"] = std::move(types);
  c["per_layer_config"] = std::move(per_layer);
  c["attention_k_eq_v"] = keys_are_values;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "gemma4_text";
  c["num_attention_heads"] = keys.require_int("attention.head_count");
  read_layers(keys, c);
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  c["rope_parameters"] = {
      {"full_attention", full_rope(keys)},
      {"sliding_attention", {{"rope_theta", keys.number_or("rope.freq_base_swa", 10000.0)}}}};
  if (keys.int_or("expert_count", 0) > 0) {
    read_gguf_experts(keys, c);
  } else {
    keys.expect_int("expert_used_count", 0);
    c["enable_moe_block"] = false;
  }
  const std::vector<int64_t> widths = keys.of_blocks("feed_forward_length");
  c["intermediate_size"] = widths.front();
  const int64_t last = widths[static_cast<size_t>(keys.num_layers() - 1)];
  c["use_double_wide_mlp"] = last == 2 * widths.front();
  c["num_kv_shared_layers"] = keys.int_or("attention.shared_kv_layers", 0);
  c["hidden_size_per_layer_input"] = keys.int_or("embedding_length_per_layer_input", 0);
  c["final_logit_softcapping"] = keys.number_or("final_logit_softcapping", 0.0);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"gemma4"},
    .config = config,
    .tensors = {{"rope_freqs.weight", ""},
                {"per_layer_token_embd", "embed_tokens_per_layer"},
                {"per_layer_model_proj", "per_layer_model_projection"},
                {"per_layer_proj_norm", "per_layer_projection_norm"},
                {"inp_gate", "per_layer_input_gate"},
                {"proj", "per_layer_projection"},
                {"post_norm", "post_per_layer_input_norm"},
                {"ffn_norm", "pre_feedforward_layernorm"},
                {"post_ffw_norm", "post_feedforward_layernorm"},
                {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                {"layer_output_scale.weight", "layer_scalar"},
                {"ffn_gate_inp.scale", "router.scale"},
                {"ffn_gate_inp.per_expert_scale", "router.per_expert_scale"},
                {"ffn_gate_inp", "router.proj"},
                {"ffn_down_exps.scale", "router.per_expert_scale"}},
    .experts = ""};

}  // namespace moeflux::gguf_gemma4
