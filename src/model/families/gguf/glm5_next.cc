// GLM-5.3-Flash as GGUF files spell it: blocks without key-value heads have the delta rule, whose
// decay is stored as its rate; the others have latent attention that turns nothing.
#include <cmath>

#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_glm5_next {
namespace {

constexpr double kIndexNormEps = 1e-6;  // of the index's LayerNorm

void read_delta(GgufKeys& keys, Json& c) {
  c["linear_num_heads"] = keys.require_int("attention.head_count");
  c["linear_head_dim"] = keys.require_int("kda.head_dim");
  c["linear_conv_kernel_dim"] = keys.require_int("ssm.conv_kernel");
  c["linear_lower_bound"] = keys.require_number("kda.gate_lower_bound");
  read_gguf_hybrid_types(keys, c, "linear_attention", "deepseek_sparse_attention");
}

void read_index(GgufKeys& keys, Json& c) {
  read_gguf_index(keys, c);
  c["index_kpool"] = keys.require_int("attention.indexer.kpool");
  c["index_kpool_compress"] = true;
  c["index_kpool_always_select_tail"] = keys.bool_or("attention.indexer.kpool_select_tail", true);
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
    .tensors = gguf_latent_names(gguf_stream_names(gguf_kda_names(
        {{"indexer_compressor_gate.weight", "self_attn.indexer.index_kpool_compress_gate"},
         {"indexer_compressor_ape.weight", "self_attn.indexer.index_kpool_compress_ape"}})))};

}  // namespace moeflux::gguf_glm5_next
