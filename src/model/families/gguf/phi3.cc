// Phi-3 and Phi-4 as GGUF files spell them: the factors of LongRoPE are tensors, and the factor of
// cos and sin is the whole of it.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_phi3 {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "phi3";
  const double attention_factor = keys.number_or("rope.scaling.attn_factor", 1.0);
  const int64_t original = keys.int_or("rope.scaling.original_context_length", 0);
  read_gguf_attention(keys, c);
  read_gguf_dense_network(keys, c);
  // llama.cpp leaves windows of this architecture alone, as converters write those of other models.
  keys.ignore("attention.sliding_window");
  if (keys.tensor("rope_factors_long.weight") == nullptr) return;
  c["rope_scaling"] = {{"type", "longrope"},
                       {"attention_factor", attention_factor},
                       {"original_max_position_embeddings", original},
                       {"long_factor", keys.read_floats("rope_factors_long.weight")},
                       {"short_factor", keys.read_floats("rope_factors_short.weight")}};
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"phi3"},
                                              .config = config,
                                              .tensors = {{"rope_factors_long", ""},
                                                          {"rope_factors_short", ""},
                                                          {"attn_qkv", "self_attn.qkv_proj"},
                                                          {"ffn_up", "mlp.gate_up_proj"}}};

}  // namespace moeflux::gguf_phi3
