// Llama 4 as GGUF files spell it. Files do not say how far layers see and which have positions:
// they are those of the published models. Frequencies come divided by the factors of rope_freqs.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_llama4 {
namespace {

constexpr int64_t kChunk = 8192;
constexpr int64_t kMaverickExperts = 128;

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "llama4_text";
  read_gguf_attention(keys, c);
  read_gguf_rope_factors(keys, c);
  keys.expect_int("attention.sliding_window", kChunk);
  c["attention_chunk_size"] = kChunk;
  c["floor_scale"] = kChunk;
  read_gguf_experts(keys, c);
  c["use_qk_norm"] = c["num_experts"] != kMaverickExperts;
  keys.expect_int("expert_gating_func", 2);
  c["interleave_moe_layer_step"] = keys.require_int("interleave_moe_layer_step");
  keys.expect_int("leading_dense_block_count", 0);
  c["intermediate_size_mlp"] = keys.require_int("feed_forward_length");
  c["intermediate_size"] = c["moe_intermediate_size"];
  c.erase("moe_intermediate_size");
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"llama4"}, .config = config, .tensors = {{"rope_freqs", ""}}};

}  // namespace moeflux::gguf_llama4
