// Llama, Mistral, Ministral 3, SmolLM3 and Mixtral, a Llama with experts, as GGUF files spell them.
// Rows of q and k are in the order that interleaved rotary pairs want: row 2i + p of a head is row
// p * head_dim / 2 + i of Hugging Face. rope_freqs has the divisors of Llama 3.1's frequencies.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_llama {
namespace {

// mistral3's multiplier is mscale_all_dim itself, where other architectures have a tenth of it.
void read_query_growth(GgufKeys& keys, Json& c) {
  if (!c.contains("rope_scaling")) return;
  Json& scaling = c["rope_scaling"];
  scaling["mscale"] = 1.0;
  scaling["mscale_all_dim"] = keys.number_or("rope.scaling.yarn_log_multiplier", 0.0);
  scaling["llama_4_scaling_beta"] = keys.number_or("attention.temperature_scale", 0.0);
  if (scaling.contains("original_max_position_embeddings")) {
    keys.expect_int("attention.temperature_length", scaling["original_max_position_embeddings"]);
  }
}

void read_dense(GgufKeys& keys, Json& c) {
  const bool grows = keys.architecture() == "mistral3";
  const bool is_smol = keys.architecture() == "smollm3";
  const int64_t window = is_smol ? 0 : keys.int_or("attention.sliding_window", 0);
  if (window > 0) c["sliding_window"] = window;
  c["model_type"] = grows ? "ministral3" : is_smol ? "smollm3" : window > 0 ? "mistral" : "llama";
  if (grows) read_query_growth(keys, c);
  read_gguf_dense_network(keys, c);
}

void config(GgufKeys& keys, Json& c) {
  read_gguf_attention(keys, c);
  c["rope_interleave"] = true;
  read_gguf_rope_factors(keys, c);
  if (keys.int_or("expert_count", 0) == 0) return read_dense(keys, c);
  c["model_type"] = "mixtral";
  read_gguf_experts(keys, c);
  c["intermediate_size"] = keys.int_or("feed_forward_length", c["moe_intermediate_size"]);
  c.erase("moe_intermediate_size");
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"llama", "mistral3", "smollm3"},
                                              .config = config,
                                              .tensors = {{"rope_freqs", ""}},
                                              .written = {{"mixtral", "llama"},
                                                          {"llama", "llama"},
                                                          {"mistral", "llama"},
                                                          {"ministral3", "mistral3"},
                                                          {"smollm3", "smollm3"}}};

}  // namespace moeflux::gguf_llama
