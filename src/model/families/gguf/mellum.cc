// Mellum 2 as GGUF files spell it: positions of both kinds of layers under their own keys, of which
// those with a window are never scaled. Routes are normalised, which no key says.
#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_mellum {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "mellum";
  read_gguf_attention(keys, c);
  read_gguf_rope_by_window(keys, c);
  c["sliding_window"] = keys.int_or("attention.sliding_window", 0);
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 3});
  read_gguf_experts(keys, c);
  c["norm_topk_prob"] = true;
  c["intermediate_size"] = keys.int_or("feed_forward_length", 1);  // of dense layers, if any
  c["mlp_layer_types"] = list_gguf_layers(keys, [&](size_t i) {
    const bool is_dense = keys.tensor(formatted("blk.{}.ffn_gate.weight", i)) != nullptr;
    return is_dense ? "dense" : "sparse";
  });
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"mellum"}, .config = config, .tensors = {}};

}  // namespace moeflux::gguf_mellum
