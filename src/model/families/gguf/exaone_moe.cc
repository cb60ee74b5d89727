// K-EXAONE as GGUF files spell it.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_exaone_moe {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "exaone_moe";
  read_gguf_attention(keys, c);
  read_gguf_rope_factors(keys, c);
  if (keys.has("attention.sliding_window")) {
    c["sliding_window"] = keys.require_int("attention.sliding_window");
  }
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 3});
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["num_shared_experts"] = keys.int_or("expert_shared_count", 1);
  keys.ignore("expert_shared_feed_forward_length");  // their widths together
  read_gguf_dense_layers(keys, c);
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"exaone-moe"},
    .config = config,
    .tensors = {{"rope_freqs", ""}},
    .written = {{"exaone_moe", "exaone-moe", /*has_pattern=*/true}}};

}  // namespace moeflux::gguf_exaone_moe
