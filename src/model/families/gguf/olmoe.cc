// OLMoE as GGUF files spell it. The width of experts is feed_forward_length.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_olmoe {
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

extern const GgufArchitecture architecture = {
    .names = {"olmoe"}, .config = config, .tensors = {}, .written = {{"olmoe", "olmoe"}}};

}  // namespace moeflux::gguf_olmoe
