// Sarvam-30B as GGUF files spell it, and Ling 2.0, whose heads turn in part: q, k and v in one
// tensor, queries and keys with a norm.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_bailingmoe2 {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "sarvam_moe";
  read_gguf_attention(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  const int64_t shared = keys.int_or("expert_shared_count", 0);
  const int64_t width = c["moe_intermediate_size"];
  c["n_shared_experts"] = shared;
  keys.expect_int("expert_shared_feed_forward_length", shared * width);
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"bailingmoe2"},
                                              .config = config,
                                              .tensors = {},
                                              .written = {{"sarvam_moe", "bailingmoe2"}}};

}  // namespace moeflux::gguf_bailingmoe2
