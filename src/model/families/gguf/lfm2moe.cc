// LFM2 with experts as GGUF files spell it: blocks without key-value heads convolve. Ollama calls
// the last norm output_norm, as others do.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_lfm2moe {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "lfm2_moe";
  read_gguf_attention(keys, c);
  read_gguf_hybrid_types(keys, c, "conv");
  c["conv_L_cache"] = keys.require_int("shortconv.l_cache");
  read_gguf_experts(keys, c);
  keys.expect_int("expert_gating_func", 2);
  c["use_expert_bias"] = keys.any_block_has("exp_probs_b.bias");
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  c["routed_scaling_factor"] = read_gguf_weights_scale(keys);
  c["num_dense_layers"] = keys.int_or("leading_dense_block_count", 0);
  c["intermediate_size"] = keys.require_int("feed_forward_length");
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"lfm2moe"},
                                              .config = config,
                                              .tensors = {{"token_embd_norm", "norm"},
                                                          {"shortconv.conv", "conv.conv"},
                                                          {"shortconv.in_proj", "conv.in_proj"},
                                                          {"shortconv.out_proj", "conv.out_proj"}},
                                              .written = {{"lfm2_moe", "lfm2moe"}}};

}  // namespace moeflux::gguf_lfm2moe
