// Hy4 as GGUF files spell it: DeepSeek's latent attention with an index in some blocks, a gate and
// sinks; streams that do not mix; a limit of routed experts alone.
#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux::gguf_hy_v4 {
namespace {

void read_limit(GgufKeys& keys, Json& c) {
  constexpr std::string_view kLimit = "swiglu_clamp_exp";
  c["swiglu_limit"] = 0.0;
  if (!keys.has(kLimit)) return;
  const std::vector<double> limits = keys.numbers_of_blocks(kLimit);
  for (const double limit : limits) {
    if (limit == limits.front()) continue;
    keys.fail(ErrorCode::kUnsupported,
              formatted("key {} has {} and {}, expected one limit for all layers",
                        keys.full(kLimit), limits.front(), limit));
  }
  c["swiglu_limit"] = limits.front();
}

void config(GgufKeys& keys, Json& c) {
  c["model_type"] = "hy_v4";
  read_gguf_latent_widths(keys, c);
  c["rope_theta"] = keys.number_or("rope.freq_base", 10000.0);
  const Json scaling = read_gguf_rope_scaling(keys);
  if (!scaling.is_null()) c["rope_scaling"] = scaling;
  read_gguf_index(keys, c);
  read_gguf_experts(keys, c);
  read_gguf_noaux_tc(keys, c);
  c["n_shared_experts"] = keys.int_or("expert_shared_count", 0);
  read_gguf_dense_layers(keys, c);
  read_limit(keys, c);
  c["hc_mult"] = keys.require_int("hyper_connection.count");
  c["hc_eps"] = keys.require_number("hyper_connection.epsilon");
  c["hc_magnitude"] = keys.require_number("hyper_connection.magnitude");
}

}  // namespace

extern const GgufArchitecture architecture = {
    .names = {"hy_v4"},
    .config = config,
    .tensors = gguf_latent_names(gguf_stream_names({{"attn_gate", "self_attn.g_proj"}}))};

}  // namespace moeflux::gguf_hy_v4
