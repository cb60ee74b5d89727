// Qwen3.8-Flash-Next as GGUF files spell it: norms already carry their one, decays are stored as
// rates and value heads tiled as those of Qwen3.5. The table of n-grams is one tensor, and keys
// have the numbers that name its rows.
#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_qwen4exp {
namespace {

constexpr uint64_t kNumbersMax = 4096;

void read_index(GgufKeys& keys, Json& c) {
  c["indexer_n_heads"] = keys.require_int("attention.indexer.head_count");
  c["indexer_head_dim"] = keys.require_int("attention.indexer.key_length");
  c["indexer_budget"] = keys.require_int("attention.indexer.top_k");
  c["indexer_compress_ratio"] = keys.require_int("attention.compress_ratios");  // 0: no index
  c["indexer_kv_heads"] = 1;
}

// Files hold the numbers that name rows, and nothing that they follow from: those of the config are
// stand-ins. Its divisor is the rows of the table, so that they are what is expected.
void read_ngrams(GgufKeys& keys, Json& c) {
  const std::vector<int64_t> layers = keys.ints("ple.layers", kNumbersMax);
  if (layers.size() != 1 || layers[0] < 0 || layers[0] >= keys.num_layers()) {
    keys.fail(ErrorCode::kUnsupported,
              formatted("ple.layers has {} layers, expected one of {}, as files have one table",
                        layers.size(), keys.num_layers()));
    return;
  }
  c["ple_layer_ids"] = std::vector<int64_t>{layers[0] + 1};
  const int64_t longest = keys.require_int("ple.ngram_size");
  const int64_t heads = keys.require_int("ple.heads_per_ngram");
  c["ngram_size"] = longest;
  c["heads_per_ngram"] = heads;
  c["ple_conv_kernel_size"] = keys.require_int("ple.conv_kernel");
  const int64_t row_dim = keys.require_int("embedding_length_per_layer_input");
  const bool is_sound = longest >= 2 && longest <= 8 && heads <= 64 && row_dim <= 1 << 20;
  c["ple_embed_dim"] = is_sound ? (longest - 1) * heads * row_dim : 0;
  c["eos_token_id"] = keys.require_int("ple.eos_token_id");
  keys.ignore("ple.image_token_id");
  for (const char* key : {"ple.layer_multipliers", "ple.head_vocab_sizes", "ple.head_offsets"}) {
    if (keys.ints(key, kNumbersMax).empty()) {
      keys.fail(ErrorCode::kCorruption, formatted("key {} is missing or empty", key));
    }
  }
  const gguf::TensorInfo* table = keys.tensor("per_layer_token_embd.weight");
  const bool has_rows = table != nullptr && table->shape.rank() == 2;
  if (!has_rows) keys.fail(ErrorCode::kCorruption, "tensor per_layer_token_embd.weight is missing");
  c["make_ngram_vocab_size_divisible_by"] = has_rows ? table->shape[0] : 1;
  c["split_ngram_parts"] = 1;
  c["ngram_vocab_size_base"] = 2;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "qwen4_exp_text";
  read_gguf_attention(keys, c);
  read_gguf_gated_delta(keys, c);
  c["linear_tiled_value_heads"] = true;
  c["output_gate_type"] = "sigmoid";
  read_index(keys, c);
  read_gguf_experts(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  c["shared_expert_intermediate_size"] = keys.require_int("expert_shared_feed_forward_length");
  c["hc_count"] = keys.require_int("hyper_connection.count");
  c["hc_lowrank"] = keys.require_int("hyper_connection.low_rank");
  read_ngrams(keys, c);
  keys.ignore("feed_forward_length");  // of dense layers: there are none
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"qwen4exp"},
    .config = config,
    .tensors = gguf_gated_delta_names(
        {{"output_hc_norm", "hyper_connection_mixer.hc_norm"},
         {"output_hc_down", "hyper_connection_mixer.input_mix_weight_down"},
         {"output_hc_up", "hyper_connection_mixer.input_mix_weight_up"},
         {"nextn.hc_head_norm", "hyper_connection_mixer.hc_norm"},
         {"nextn.hc_head_down", "hyper_connection_mixer.input_mix_weight_down"},
         {"nextn.hc_head_up", "hyper_connection_mixer.input_mix_weight_up"},
         {"hc_attn_norm", "attn_hyper_connection.hc_norm"},
         {"hc_attn_down", "attn_hyper_connection.input_mix_weight_down"},
         {"hc_attn_up", "attn_hyper_connection.input_mix_weight_up"},
         {"hc_attn_inject", "attn_hyper_connection.block_inject_weight"},
         {"hc_ffn_norm", "mlp_hyper_connection.hc_norm"},
         {"hc_ffn_down", "mlp_hyper_connection.input_mix_weight_down"},
         {"hc_ffn_up", "mlp_hyper_connection.input_mix_weight_up"},
         {"hc_ffn_inject", "mlp_hyper_connection.block_inject_weight"},
         {"indexer.q_proj", "self_attn.indexer.q_proj"},
         {"indexer.k_proj", "self_attn.indexer.k_proj"},
         {"indexer.q_norm", "self_attn.indexer.q_layernorm"},
         {"indexer.k_norm", "self_attn.indexer.k_layernorm"},
         {"ple_key", "ple.key_proj"},
         {"ple_value", "ple.value_proj"},
         {"ple_norm_key", "ple.norm_key"},
         {"ple_norm_query", "ple.norm_query"},
         {"ple_norm_conv", "ple.norm_conv"},
         {"ple_conv1d", "ple.conv1d"}}),
    .of_one_layer = {{"per_layer_token_embd", "ple.ple_embedding.ngram_embedding.shard_0"}},
    .keys_of_one_layer = {{"ple.layer_multipliers", "ple.ple_embedding.layer_multipliers"},
                          {"ple.head_vocab_sizes", "ple.ple_embedding.ngram_heads_vocab_sizes"},
                          {"ple.head_offsets", "ple.ple_embedding.ngram_heads_offsets"}},
    .one_layer = "ple_layer_ids"};

}  // namespace moeflux::gguf_qwen4exp
