// DeepSeek-V4 as GGUF files spell it: tokens of an entry by block, in as many numbers as the
// publisher's config has, which also counts blocks that predict; experts of tokens as I32.
#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_deepseek4 {
namespace {

constexpr int64_t kSqrtSoftplus = 4;  // of expert_gating_func

// Some files count blocks that predict and do not hold them.
int64_t num_layers(GgufKeys& keys) {
  const int64_t layers = keys.num_layers();
  for (const char* combine : {"eh_proj", "e_proj"}) {
    if (keys.tensor(formatted("blk.{}.nextn.{}.weight", layers, combine)) != nullptr) return layers;
  }
  return keys.num_blocks();
}

void read_attention(GgufKeys& keys, Json& c) {
  const int64_t head_dim = keys.require_int("attention.key_length");
  keys.expect_int("attention.value_length", head_dim);
  keys.expect_int("attention.head_count_kv", 1);
  c["num_attention_heads"] = keys.require_int("attention.head_count");
  c["num_key_value_heads"] = 1;
  c["head_dim"] = head_dim;
  c["q_lora_rank"] = keys.require_int("attention.q_lora_rank");
  c["o_groups"] = keys.require_int("attention.output_group_count");
  c["o_lora_rank"] = keys.require_int("attention.output_lora_rank");
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  std::vector<int64_t> units = keys.of_blocks("attention.compress_ratios", true);
  units.resize(c["num_hidden_layers"]);
  c["compress_ratios"] = units;
  c["index_n_heads"] = keys.require_int("attention.indexer.head_count");
  c["index_head_dim"] = keys.require_int("attention.indexer.key_length");
  c["index_topk"] = keys.require_int("attention.indexer.top_k");
}

void read_ropes(GgufKeys& keys, Json& c) {
  c["qk_rope_head_dim"] = keys.require_int("rope.dimension_count");
  c["rope_theta"] = keys.require_number("rope.freq_base");
  c["compress_rope_theta"] = keys.require_number("attention.compress_rope_freq_base");
  const Json scaling = read_gguf_rope_scaling(keys);
  if (!scaling.is_null()) c["rope_scaling"] = scaling;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "deepseek_v4";
  c["num_hidden_layers"] = num_layers(keys);
  read_attention(keys, c);
  read_ropes(keys, c);
  read_gguf_experts(keys, c);
  keys.expect_int("expert_gating_func", kSqrtSoftplus);
  c["scoring_func"] = "sqrtsoftplus";
  c["n_shared_experts"] = keys.require_int("expert_shared_count");
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  c["routed_scaling_factor"] = keys.require_number("expert_weights_scale");
  c["num_hash_layers"] = keys.int_or("hash_layer_count", 0);
  read_gguf_common_limit(keys, c);
  read_gguf_streams(keys, c);
  keys.ignore("embedding_length_out");  // of all streams: follows from their number
  keys.ignore("feed_forward_length");   // of dense layers: there are none
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"deepseek4"},
    .config = config,
    .tensors = gguf_stream_names({{"attn_norm", "attn_norm"},
                                  {"ffn_norm", "ffn_norm"},
                                  {"attn_sinks.weight", "attn.attn_sink"},
                                  {"attn_q_a", "attn.wq_a"},
                                  {"attn_q_a_norm", "attn.q_norm"},
                                  {"attn_q_b", "attn.wq_b"},
                                  {"attn_kv", "attn.wkv"},
                                  {"attn_kv_a_norm", "attn.kv_norm"},
                                  {"attn_output_a", "attn.wo_a"},
                                  {"attn_output_b", "attn.wo_b"},
                                  {"attn_compressor_kv", "attn.compressor.wkv"},
                                  {"attn_compressor_gate", "attn.compressor.wgate"},
                                  {"attn_compressor_ape.weight", "attn.compressor.ape"},
                                  {"attn_compressor_norm", "attn.compressor.norm"},
                                  {"indexer.attn_q_b", "attn.indexer.wq_b"},
                                  {"indexer.proj", "attn.indexer.weights_proj"},
                                  {"indexer_compressor_kv", "attn.indexer.compressor.wkv"},
                                  {"indexer_compressor_gate", "attn.indexer.compressor.wgate"},
                                  {"indexer_compressor_ape.weight", "attn.indexer.compressor.ape"},
                                  {"indexer_compressor_norm", "attn.indexer.compressor.norm"},
                                  {"ffn_gate_inp", "ffn.gate"},
                                  {"ffn_gate_tid2eid.weight", "ffn.gate.tid2eid"},
                                  // The bias of layers that list experts decides nothing.
                                  {"exp_probs_b.bias", "ffn.gate.bias", "ffn_gate_tid2eid.weight"},
                                  {"exp_probs_b.bias", ""},
                                  {"exp_probs_b_vl", ""},  // of tokens of images
                                  {"ffn_gate_shexp", "ffn.shared_experts.gate_proj"},
                                  {"ffn_up_shexp", "ffn.shared_experts.up_proj"},
                                  {"ffn_down_shexp", "ffn.shared_experts.down_proj"}}),
    .experts = "ffn"};

}  // namespace moeflux::gguf_deepseek4
