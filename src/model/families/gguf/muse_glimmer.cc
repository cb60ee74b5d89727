// Muse Glimmer as GGUF files spell it: norms of layers already carry their one, rows of q and k are
// in the order that interleaved rotary pairs want, and a norm of queries says what scales them.
#include <algorithm>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_muse_glimmer {
namespace {

// The number that all of the tensor is.
double read_constant(GgufKeys& keys, const std::string& name) {
  const std::vector<float> numbers = keys.read_floats(name);
  const bool is_one = std::ranges::all_of(numbers, [&](float n) { return n == numbers.front(); });
  if (numbers.empty() || !is_one) {
    keys.fail(ErrorCode::kUnsupported, formatted("{} has several numbers, expected one", name));
    return 1.0;
  }
  return numbers.front();
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "muse_glimmer_text";
  read_gguf_attention(keys, c);
  read_gguf_dense_network(keys, c);
  c["norms_hold_one"] = true;
  c["rope_interleave"] = true;
  const double scale = read_constant(keys, "blk.0.attn_q_norm.weight");
  c["qk_scale_factor"] = scale;
  for (int64_t i = 0; i < keys.num_layers(); ++i) {
    if (read_constant(keys, formatted("blk.{}.attn_q_norm.weight", i)) == scale &&
        read_constant(keys, formatted("blk.{}.attn_k_norm.weight", i)) == 1.0) {
      continue;
    }
    keys.fail(ErrorCode::kUnsupported,
              formatted("norms of queries and keys of block {} are not {} and 1, as in block 0", i,
                        scale));
  }
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  read_gguf_layer_types(keys, c, {.interval = 4, .full_at = 3});
  std::vector<double> bases;
  for (const Json& type : c["layer_types"]) {
    bases.push_back(type == "sliding_attention"
                        ? keys.number_or("rope.freq_base_swa", c["rope_theta"].get<double>())
                        : 0.0);
  }
  c["layer_rope_theta"] = bases;
  c["final_logit_softcapping"] = keys.number_or("final_logit_softcapping", 0.0);
  c["output_multiplier"] = keys.require_number("logit_scale");
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"muse-glimmer"},
    .config = config,
    .tensors = {{"attn_q_norm", ""},
                {"attn_k_norm", ""},
                {"attn_gate", "self_attn.g_proj"},
                {"post_attention_norm", "post_attention_layernorm"},
                {"ffn_norm", "pre_feedforward_layernorm"},
                {"post_ffw_norm", "post_feedforward_layernorm"}}};

}  // namespace moeflux::gguf_muse_glimmer
