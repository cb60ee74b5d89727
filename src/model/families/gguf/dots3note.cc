// dots3-note as GGUF files spell it: heads of queries by block, widths of latents and heads in
// blocks with a window under keys of their own, and norms of latents that lift them as well.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_dots3note {
namespace {

constexpr std::string_view kHeads = "attention.head_count";

// Blocks of both kinds have the same low rank of queries and the same rotary part.
void read_sliding(GgufKeys& keys, Json& c) {
  const int64_t rope = c["qk_rope_head_dim"];
  const int64_t width = keys.require_int("attention.key_length_mla_swa");
  c["swa_q_lora_rank"] = c["q_lora_rank"];
  c["swa_kv_lora_rank"] = keys.require_int("attention.kv_lora_rank_swa");
  c["swa_head_dim"] = width;
  c["swa_qk_nope_head_dim"] = width - rope;
  c["swa_qk_rope_head_dim"] = rope;
  c["swa_v_head_dim"] = keys.require_int("attention.value_length_mla_swa");
  for (const char* follows : {"attention.key_length_swa", "attention.value_length_swa"}) {
    keys.ignore(follows);
  }
  c["sliding_window_size"] = keys.require_int("attention.sliding_window");
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "dots3_note";
  const std::vector<int64_t> sliding = keys.of_blocks("attention.sliding_window_pattern");
  c["num_attention_heads"] = read_gguf_heads(keys, sliding, {kHeads, false});
  c["swa_num_attention_heads"] = read_gguf_heads(keys, sliding, {kHeads, true});
  read_gguf_latent_widths(keys, c);
  read_sliding(keys, c);
  read_gguf_layer_types(keys, c, {});
  c["apply_mla_qkv_lora_rescale"] = false;  // the file's norms have it
  c["rope_theta"] = keys.require_number("rope.freq_base");
  c["swa_rope_theta"] = keys.require_number("rope.freq_base_swa");
  expect_no_gguf_rope_scaling(keys);
  read_gguf_index(keys, c);
  c.erase("indexer_types");  // the layers that see all
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  c["moe_shared_expert_intermediate_size"] = c["moe_intermediate_size"];
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"dots3note"},
    .config = config,
    .tensors = gguf_latent_names(
        {{"attn_k_norm", "self_attn.k_rope_only_layernorm"}, {"attn_gate", "self_attn.g_proj"}})};

}  // namespace moeflux::gguf_dots3note
