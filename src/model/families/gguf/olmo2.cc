// OLMo 2 as GGUF files spell it, and OLMo 3, which has windows.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_olmo2 {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "olmo2";
  read_gguf_attention(keys, c);
  read_gguf_dense_network(keys, c);
  const int64_t window = keys.int_or("attention.sliding_window", 0);
  if (window == 0) return;
  c["model_type"] = "olmo3";
  c["sliding_window"] = window;
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 3});
  read_gguf_rope_by_window(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"olmo2"},
    .config = config,
    .tensors = {{"post_attention_norm", "post_attention_layernorm"},
                {"post_ffw_norm", "post_feedforward_layernorm"}}};

}  // namespace moeflux::gguf_olmo2
