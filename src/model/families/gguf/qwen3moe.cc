// Qwen3 and Qwen2 mixture-of-experts models as GGUF files spell them, their dense ones, and the
// text of Qwen3-VL and Qwen2-VL.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_qwen3moe {
namespace {

void read_dense(GgufKeys& keys, Json& c) {
  const bool is_qwen3 = keys.architecture() == "qwen3";
  c["model_type"] = is_qwen3 ? "qwen3" : "qwen2";
  if (!is_qwen3) c["qkv_bias"] = keys.any_block_has("attn_q.bias");
  read_gguf_attention(keys, c);
  read_gguf_dense_network(keys, c);
}

void config(GgufKeys& keys, Json& c) {
  const bool is_qwen2 = keys.architecture() == "qwen2moe";
  const bool sees = keys.architecture() == "qwen3vlmoe";
  c["model_type"] = is_qwen2 ? "qwen2_moe" : sees ? "qwen3_vl_moe_text" : "qwen3_moe";
  for (const std::string_view dense : {"qwen3", "qwen2", "qwen2vl"}) {
    if (keys.architecture() == dense) return read_dense(keys, c);
  }
  keys.ignore("n_deepstack_layers");  // the first ones, which an image adds to
  read_gguf_attention(keys, c);
  read_gguf_experts(keys, c);
  c["intermediate_size"] =
      keys.int_or("feed_forward_length", 1);  // of dense layers: there are none
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", !is_qwen2);
  if (!is_qwen2) return;
  c["qkv_bias"] = keys.any_block_has("attn_q.bias");
  int64_t shared = keys.int_or("expert_shared_feed_forward_length", 0);
  // Older files do not say the width, but their tensors do.
  const gguf::TensorInfo* gate = keys.tensor("blk.0.ffn_gate_shexp.weight");
  if (shared == 0 && gate != nullptr && gate->shape.rank() == 2) shared = gate->shape[0];
  c["shared_expert_intermediate_size"] = shared;
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"qwen3moe", "qwen3", "qwen2moe", "qwen2", "qwen2vl", "qwen3vlmoe"},
    .config = config,
    .tensors = {{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                {"ffn_down_shexp", "mlp.shared_expert.down_proj"}},
    .written = {{"qwen3_moe", "qwen3moe"}, {"qwen3", "qwen3"}, {"qwen2_moe", "qwen2moe"}}};

}  // namespace moeflux::gguf_qwen3moe
