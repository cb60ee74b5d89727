// Tencent Hy3 as GGUF files spell it. Its first layer is dense also where no key says so.
#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_hy_v3 {
namespace {

/// How many of the first blocks have no routed experts.
int64_t dense_blocks(GgufKeys& keys) {
  int64_t count = 0;
  while (count < keys.num_layers() &&
         keys.tensor(formatted("blk.{}.ffn_gate_inp.weight", count)) == nullptr) {
    ++count;
  }
  return count;
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "hy_v3";
  read_gguf_attention(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["router_scaling_factor"] = c["routed_scaling_factor"];
  c["norm_topk_prob"] = keys.bool_or("expert_weights_norm", true);
  const int64_t width = c["moe_intermediate_size"];
  const int64_t shared = keys.int_or("expert_shared_feed_forward_length", width);
  c["num_shared_experts"] = keys.int_or("expert_shared_count", width == 0 ? 0 : shared / width);
  c["intermediate_size"] = keys.require_int("feed_forward_length");
  c["first_k_dense_replace"] = keys.int_or("leading_dense_block_count", dense_blocks(keys));
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"hy_v3"}, .config = config, .tensors = {}, .written = {{"hy_v3", "hy_v3"}}};

}  // namespace moeflux::gguf_hy_v3
