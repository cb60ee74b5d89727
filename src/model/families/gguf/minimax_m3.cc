// MiniMax-M3 as GGUF files spell it: norms are stored with their one, and layers with experts are
// those with an index.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_minimax_m3 {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "minimax_m3";
  read_gguf_attention(keys, c);
  c["rotary_dim"] = keys.int_or("rope.dimension_count", c["head_dim"]);
  read_gguf_experts(keys, c);
  c["intermediate_size"] = c["moe_intermediate_size"];
  c.erase("moe_intermediate_size");
  read_gguf_noaux_tc(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  c["dense_intermediate_size"] = keys.require_int("feed_forward_length");
  const int64_t num_dense = keys.int_or("leading_dense_block_count", 0);
  std::vector<int64_t> sparse;
  for (int64_t i = 0; i < keys.num_layers(); ++i) sparse.push_back(i < num_dense ? 0 : 1);
  c["moe_layer_freq"] = sparse;
  c["sparse_attention_config"] = {
      {"sparse_attention_freq", sparse},
      {"sparse_num_index_heads", keys.require_int("attention.indexer.head_count")},
      {"sparse_index_dim", keys.require_int("attention.indexer.key_length")},
      {"sparse_topk_blocks", keys.require_int("attention.indexer.top_k")},
      {"sparse_block_size", keys.require_int("attention.indexer.block_size")},
      {"sparse_local_block", keys.require_int("attention.indexer.local_blocks")}};
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"minimax-m3"},
    .config = config,
    .tensors = {{"exp_probs_b.bias", "mlp.expert_bias"},
                {"indexer.q_proj", "self_attn.indexer.q_proj"},
                {"indexer.k_proj", "self_attn.indexer.k_proj"},
                {"indexer.q_norm", "self_attn.indexer.q_norm"},
                {"indexer.k_norm", "self_attn.indexer.k_norm"}}};

}  // namespace moeflux::gguf_minimax_m3
