// OLMoE as GGUF files spell it. The width of experts is feed_forward_length.
#include "model/gguf/gguf_architecture.h"

namespace moeflux {
namespace gguf_olmoe {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "olmoe";
  read_gguf_attention(keys, c);
  read_gguf_experts(keys, c);
  c["intermediate_size"] = keys.int_or("feed_forward_length", c["moe_intermediate_size"]);
  c.erase("moe_intermediate_size");
  c["norm_topk_prob"] = false;
}

}  // namespace
}  // namespace gguf_olmoe

extern const GgufArchitecture olmoe_gguf;
const GgufArchitecture olmoe_gguf = {.names = {"olmoe"},
                                     .config = gguf_olmoe::config,
                                     .tensors = {},
                                     .written = {{"olmoe", "olmoe"}}};

}  // namespace moeflux
