// dots.llm1 as GGUF files spell it. Scores are sigmoids also where no key says so.
#include "model/gguf/gguf_architecture.h"

namespace moeflux {
namespace gguf_dots1 {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "dots1";
  read_gguf_attention(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
}

}  // namespace
}  // namespace gguf_dots1

extern const GgufArchitecture dots1_gguf;
const GgufArchitecture dots1_gguf = {.names = {"dots1"},
                                     .config = gguf_dots1::config,
                                     .tensors = {},
                                     .written = {{"dots1", "dots1"}}};

}  // namespace moeflux
