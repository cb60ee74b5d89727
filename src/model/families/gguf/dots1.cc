// dots.llm1 as GGUF files spell it. Scores are sigmoids also where no key says so.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_dots1 {
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

extern const GgufArchitecture architecture = {
    .names = {"dots1"}, .config = config, .tensors = {}, .written = {{"dots1", "dots1"}}};

}  // namespace moeflux::gguf_dots1
