// Granite without experts, Granite 3 MoE, Granite Swash and Granite 4.0 H as GGUF files spell them.
// Rows of q and k are in the order that interleaved rotary pairs want. Blocks without key-value
// heads are Mamba-2, whose decay is stored as its rate.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_granitemoe {
namespace {

void read_hybrid(GgufKeys& keys, Json& c) {
  read_gguf_hybrid_types(keys, c, "mamba", "attention");
  const GgufScan scan = read_gguf_scan(keys);
  c["mamba_n_heads"] = scan.heads;
  c["mamba_d_head"] = scan.head_dim;
  c["mamba_n_groups"] = scan.groups;
  c["mamba_d_state"] = scan.state_dim;
  c["mamba_d_conv"] = scan.conv_taps;
  c["mamba_conv_bias"] = scan.conv_bias;
}

// The pattern of blocks that turn is not in files where all do.
void read_windows(GgufKeys& keys, Json& c) {
  constexpr std::string_view kTurning = "attention.rope_pattern";
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 0});
  if (!keys.has(kTurning)) return;
  const std::vector<int64_t> turning = keys.of_blocks(kTurning);
  const Json theta = c["rope_theta"];
  c["layer_rope_theta"] =
      list_gguf_layers(keys, [&](size_t i) { return turning[i] != 0 ? theta : Json(0); });
}

void config(GgufKeys& keys, Json& c) {
  const bool is_hybrid = keys.architecture() == "granitehybrid";
  const bool is_swash = keys.architecture() == "granite_swa";
  c["model_type"] = is_hybrid  ? "granitemoehybrid"
                    : is_swash ? "granitemoe_swa"
                               : "granitemoeshared";
  read_gguf_attention(keys, c);
  read_gguf_rope_factors(keys, c);
  c["rope_interleave"] = true;
  c["position_embedding_type"] = keys.bool_or("rope.scaling.finetuned", true) ? "rope" : "nope";
  c["attention_multiplier"] = keys.require_number("attention.scale");
  c["embedding_multiplier"] = keys.number_or("embedding_scale", 1.0);
  c["residual_multiplier"] = keys.number_or("residual_scale", 1.0);
  c["logits_scaling"] = keys.number_or("logit_scale", 1.0);
  if (is_swash) read_windows(keys, c);
  if (keys.int_or("expert_count", 0) == 0) {
    read_gguf_dense_network(keys, c);
    if (is_hybrid) {
      c["num_local_experts"] = 0;
      c["shared_intermediate_size"] = c["intermediate_size"];
      return read_hybrid(keys, c);
    }
    c["model_type"] = is_swash ? "granite_swa" : "granite";
    return;
  }
  read_gguf_experts(keys, c);
  c["intermediate_size"] = c["moe_intermediate_size"];
  c.erase("moe_intermediate_size");
  keys.ignore("feed_forward_length");  // as wide as experts
  c["shared_intermediate_size"] = keys.int_or("expert_shared_feed_forward_length", 0);
  if (is_hybrid) read_hybrid(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"granitemoe", "granite", "granitehybrid", "granite_swa"},
    .config = config,
    .tensors = {{"rope_freqs", ""},
                // Swash's has the rows of its gate first.
                {"ffn_up_shexp", "mlp.shared_experts.gate_up_proj", "ffn_gate_shexp.weight"},
                {"ssm_in", "mamba.in_proj"},
                {"ssm_conv1d", "mamba.conv1d"},
                {"ssm_a", "mamba.decay_rate"},
                {"ssm_d", "mamba.D"},
                {"ssm_dt.bias", "mamba.dt_bias"},
                {"ssm_norm", "mamba.norm"},
                {"ssm_out", "mamba.out_proj"}}};

}  // namespace moeflux::gguf_granitemoe
