// ERNIE 4.5 with experts as GGUF files spell it. The bias that selects and the width of shared
// experts stand in the tensors.
#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_ernie4_5_moe {
namespace {

/// Rows of the first shared network; 0 where there is none.
int64_t shared_width(GgufKeys& keys) {
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    const gguf::TensorInfo* gate = keys.tensor(formatted("blk.{}.ffn_gate_shexp.weight", i));
    if (gate != nullptr && gate->shape.rank() == 2) return gate->shape[0];
  }
  return 0;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "ernie4_5_moe";
  read_gguf_attention(keys, c);
  read_gguf_experts(keys, c);
  keys.expect_int("expert_gating_func", 1);
  const int64_t width = c["moe_intermediate_size"];
  c["moe_num_shared_experts"] = width == 0 ? 0 : shared_width(keys) / width;
  for (const char* said : {"expert_shared_count", "expert_shared_feed_forward_length"}) {
    keys.ignore(said);  // the second is not the width that tensors have
  }
  c["intermediate_size"] = keys.require_int("feed_forward_length");
  c["moe_layer_start_index"] = keys.int_or("leading_dense_block_count", 0);
  c["moe_layer_interval"] = keys.int_or("interleave_moe_layer_step", 1);
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"ernie4_5-moe"},
                                              .config = config,
                                              .tensors = {},
                                              .written = {{"ernie4_5_moe", "ernie4_5-moe"}}};

}  // namespace moeflux::gguf_ernie4_5_moe
