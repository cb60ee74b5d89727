// Mellum 2 as GGUF files spell it: positions of both kinds of layers under their own keys, of which
// those with a window are never scaled. Routes are normalised, which no key says.
#include <utility>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_mellum {
namespace {

void read_positions(GgufKeys& keys, Json& c) {
  const double theta = c["rope_theta"];
  Json full = c.value("rope_scaling", Json::object());
  full["rope_theta"] = theta;
  const double local = keys.number_or("rope.freq_base_swa", theta);
  c["rope_parameters"] = {{"full_attention", std::move(full)},
                          {"sliding_attention", {{"rope_theta", local}}}};
  for (const char* said : {"rope_theta", "rope_scaling"}) c.erase(said);
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "mellum";
  read_gguf_attention(keys, c);
  read_positions(keys, c);
  c["sliding_window"] = keys.int_or("attention.sliding_window", 0);
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 3});
  read_gguf_experts(keys, c);
  c["norm_topk_prob"] = true;
  c["intermediate_size"] = keys.int_or("feed_forward_length", 1);  // of dense layers, if any
  Json types = Json::array();
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    const bool is_dense = keys.tensor(formatted("blk.{}.ffn_gate.weight", i)) != nullptr;
    types.push_back(is_dense ? "dense" : "sparse");
  }
  c["mlp_layer_types"] = types;
}

}  // namespace

extern const GgufArchitecture architecture = {.names = {"mellum"}, .config = config, .tensors = {}};

}  // namespace moeflux::gguf_mellum
