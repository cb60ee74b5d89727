// Inkling as GGUF files spell it: heads of keys in an array with a number a block, stacks of shared
// experts, and a scale of each block's network.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_inkling {
namespace {

constexpr std::string_view kKvHeads = "attention.head_count_kv";

void read_attention(GgufKeys& keys, Json& c) {
  const int64_t heads = keys.require_int("attention.head_count");
  const int64_t head_dim = keys.require_int("attention.key_length");
  keys.expect_int("attention.value_length", head_dim);
  const std::vector<int64_t> sliding = keys.of_blocks("attention.sliding_window_pattern", true);
  const int64_t window = keys.require_int("attention.sliding_window");
  keys.expect_int("rel_extent_swa", window);
  c["layer_types"] = list_gguf_layers(keys, [&](size_t i) {
    return i < sliding.size() && sliding[i] != 0 ? "hybrid_sliding" : "hybrid";
  });
  c["num_attention_heads"] = c["swa_num_attention_heads"] = heads;
  c["head_dim"] = c["swa_head_dim"] = head_dim;
  c["num_key_value_heads"] = read_gguf_heads(keys, sliding, {kKvHeads, false, heads});
  c["swa_num_key_value_heads"] = read_gguf_heads(keys, sliding, {kKvHeads, true, heads});
  c["sliding_window_size"] = window;
  c["d_rel"] = keys.require_int("d_rel");
  c["rel_extent"] = keys.require_int("rel_extent");
  c["sconv_kernel_size"] = keys.require_int("shortconv_kernel");
  const int64_t floor = keys.int_or("log_scaling_n_floor", 0);
  const double alpha = keys.number_or("log_scaling_alpha", 0.0);
  if (floor == 0) return;
  c["log_scaling_n_floor"] = floor;
  c["log_scaling_alpha"] = alpha;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "inkling_text";
  read_attention(keys, c);
  read_gguf_experts(keys, c);
  keys.expect_int("expert_gating_func", 2);
  c["n_shared_experts"] = keys.require_int("expert_shared_count");
  c["route_scale"] = read_gguf_weights_scale(keys);
  c["intermediate_size"] = keys.require_int("feed_forward_length");
  c["dense_mlp_idx"] = keys.int_or("dense_block_count", 0);
  c["logits_mup_width_multiplier"] = keys.require_number("logit_scale_denom");
  const int64_t unpadded = keys.int_or("unpadded_vocab_size", 0);
  if (unpadded > 0) c["unpadded_vocab_size"] = unpadded;
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"inkling"},
    .config = config,
    .tensors = {{"token_embd_norm", "embed_norm"},
                {"attn_r", "self_attn.r_proj"},
                {"attn_rel_proj.weight", "self_attn.rel_logits_proj.proj"},
                {"shortconv_k", "self_attn.k_sconv"},
                {"shortconv_v", "self_attn.v_sconv"},
                {"shortconv_attn", "attn_sconv"},
                {"shortconv_mlp", "mlp_sconv"},
                {"ffn_gscale.weight", "mlp.gate.global_scale", "ffn_gate.weight"},
                {"ffn_gscale.weight", "mlp.global_scale", "ffn_gate_inp.weight"}}};

}  // namespace moeflux::gguf_inkling
