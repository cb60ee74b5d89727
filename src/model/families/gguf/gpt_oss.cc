// gpt-oss as GGUF files spell it, llama.cpp's and Ollama's: gate and up apart, F32 biases. That
// YaRN's range is not rounded is in OpenAI's config.json and in no key of these files.
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_gpt_oss {
namespace {

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "gpt_oss";
  read_gguf_attention(keys, c);
  if (c.contains("rope_scaling")) {
    Json& scaling = c["rope_scaling"];
    if (!keys.has("rope.scaling.type")) {  // Ollama leaves it out
      scaling["type"] = "yarn";
      scaling["beta_fast"] = keys.number_or("rope.scaling.yarn_beta_fast", 32.0);
      scaling["beta_slow"] = keys.number_or("rope.scaling.yarn_beta_slow", 1.0);
    }
    scaling["truncate"] = false;
  }
  read_gguf_experts(keys, c);
  c["intermediate_size"] = c["moe_intermediate_size"];
  c.erase("moe_intermediate_size");
  keys.ignore("feed_forward_length");  // the same
  c["sliding_window"] = keys.require_int("attention.sliding_window");
  read_gguf_layer_types(keys, c, {.interval = 2, .full_at = 1});
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"gpt-oss", "gptoss"},
    .config = config,
    .tensors = {{"ffn_gate_inp", "mlp.router"},
                {"attn_output", "self_attn.o_proj"},  // the first is written
                {"attn_out", "self_attn.o_proj"},     // Ollama's
                {"post_attention_norm", "post_attention_layernorm"}},
    .written = {{"gpt_oss", "gpt-oss"}}};

}  // namespace moeflux::gguf_gpt_oss
