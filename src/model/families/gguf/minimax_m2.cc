// MiniMax-M2 to M2.7 as GGUF files spell them. Scores are sigmoids also where no key says so.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_minimax_m2 {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "minimax_m2";
  read_gguf_attention(keys, c);
  c["rotary_dim"] = keys.int_or("rope.dimension_count", c["head_dim"]);
  c.erase("partial_rotary_factor");
  read_gguf_experts(keys, c);
  c["intermediate_size"] = c["moe_intermediate_size"];
  c.erase("moe_intermediate_size");
  keys.ignore("feed_forward_length");  // the same
  read_gguf_noaux_tc(keys, c);
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"minimax-m2"},
                                              .config = config,
                                              .tensors = {},
                                              .written = {{"minimax_m2", "minimax-m2"}}};

}  // namespace moeflux::gguf_minimax_m2
