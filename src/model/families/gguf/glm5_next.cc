// GLM-5.3-Flash as GGUF files spell it: blocks without key-value heads have the delta rule, whose
// decay is stored as its rate; the others have latent attention that turns nothing.
#include <cmath>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_glm5_next {
namespace {

constexpr double kIndexNormEps = 1e-6;  // of the index's LayerNorm

void read_delta(GgufKeys& keys, Json& c) {
  c["linear_num_heads"] = keys.require_int("attention.head_count");
  c["linear_head_dim"] = keys.require_int("kda.head_dim");
  c["linear_conv_kernel_dim"] = keys.require_int("ssm.conv_kernel");
  c["linear_lower_bound"] = keys.require_number("kda.gate_lower_bound");
  const std::vector<int64_t> kv_heads = keys.of_blocks("attention.head_count_kv");
  Json types = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    const bool is_delta = kv_heads[static_cast<size_t>(i)] == 0;
    types.push_back(is_delta ? "linear_attention" : "deepseek_sparse_attention");
  }
  c["layer_types"] = types;
}

void read_index(GgufKeys& keys, Json& c) {
  c["index_n_heads"] = keys.require_int("attention.indexer.head_count");
  c["index_head_dim"] = keys.require_int("attention.indexer.key_length");
  c["index_topk"] = keys.require_int("attention.indexer.top_k");
  c["index_kpool"] = keys.require_int("attention.indexer.kpool");
  c["index_kpool_compress"] = true;
  c["index_kpool_always_select_tail"] = keys.bool_or("attention.indexer.kpool_select_tail", true);
  keys.ignore("attention.indexer.types");  // says the same
  Json types = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    // Nothing is known of files without tensors, as tests have them.
    const bool has_index = keys.tensor(formatted("blk.{}.indexer.proj.weight", i)) != nullptr ||
                           keys.model().tensors().empty();
    types.push_back(has_index ? "full" : "shared");
  }
  c["indexer_types"] = types;
  const double eps = keys.number_or("attention.layer_norm_epsilon", kIndexNormEps);
  if (std::abs(eps - kIndexNormEps) < 1e-9) return;
  keys.fail(ErrorCode::kUnsupported,
            "attention.layer_norm_epsilon is not 1e-6, as indices have it");
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "glm5_next_text";
  read_gguf_latent_widths(keys, c);
  read_delta(keys, c);
  read_index(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
  read_gguf_common_limit(keys, c);
  read_gguf_streams(keys, c);
  keys.ignore("rope.freq_base");  // nothing turns
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"glm5-next"},
    .config = config,
    .tensors = gguf_latent_names(gguf_stream_names(
        {{"ssm_conv1d_q", "self_attn.q_conv1d"},
         {"ssm_conv1d_k", "self_attn.k_conv1d"},
         {"ssm_conv1d_v", "self_attn.v_conv1d"},
         {"ssm_f_a", "self_attn.f_a_proj"},
         {"ssm_f_b", "self_attn.f_b_proj"},
         {"ssm_g_a", "self_attn.g_a_proj"},
         {"ssm_g_b", "self_attn.g_b_proj"},
         {"ssm_beta", "self_attn.b_proj"},
         {"ssm_a", "self_attn.decay_rate"},
         {"ssm_dt.bias", "self_attn.dt_bias"},
         {"ssm_norm", "self_attn.o_norm"},
         {"indexer_compressor_gate.weight", "self_attn.indexer.index_kpool_compress_gate"},
         {"indexer_compressor_ape.weight", "self_attn.indexer.index_kpool_compress_ape"}}))};

}  // namespace moeflux::gguf_glm5_next
