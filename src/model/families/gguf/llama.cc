// Mixtral as GGUF files spell it: a Llama with experts. Rows of q and k are in the order that
// interleaved rotary pairs want: row 2i + p of a head is row p * head_dim / 2 + i of Hugging Face.
#include "model/gguf/gguf_architecture.h"

namespace moeflux {
namespace gguf_llama {
namespace {

void config(GgufKeys& keys, Json& c) {
  if (!keys.has("expert_count") || keys.require_int("expert_count") == 0) {
    keys.fail(ErrorCode::kUnsupported,
              "llama.expert_count is 0 or missing: a model without experts");
  }
  c["model_type"] = "mixtral";
  read_gguf_attention(keys, c);
  c["rope_interleave"] = true;
  read_gguf_experts(keys, c);
  c["intermediate_size"] = keys.int_or("feed_forward_length", c["moe_intermediate_size"]);
  c.erase("moe_intermediate_size");
}

}  // namespace
}  // namespace gguf_llama

extern const GgufArchitecture llama_gguf;
const GgufArchitecture llama_gguf = {.names = {"llama"},
                                     .config = gguf_llama::config,
                                     .tensors = {},
                                     .written = {{"mixtral", "llama"}}};

}  // namespace moeflux
