// The bytes of a config.json: refused, or a spec whose layers, state and frequencies make sense.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/config/config.h"
#include "model/config/quant_config.h"
#include "model/family/family.h"
#include "model/mixers/attention.h"
#include "model/model_spec.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const moeflux::ModelSpec& spec) {
  require(!spec.layers.empty());
  require(spec.hidden_size > 0 && spec.vocab_size > 0);
  require(moeflux::state_specs(spec).size() == spec.layers.size());
  for (const moeflux::LayerSpec& layer : spec.layers) {
    require(layer.moe.experts_per_token <= layer.moe.num_experts);
    const auto* attention = moeflux::mixer_as<moeflux::AttentionSpec>(layer);
    if (attention == nullptr) continue;
    require(attention->num_heads % attention->num_kv_heads == 0);
    require(attention->rope.rotary_dim <= attention->head_dim);
    const auto& frequencies = attention->rope.inverse_frequencies;
    require(static_cast<int64_t>(frequencies.size()) == attention->rope.rotary_dim / 2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto config = moeflux::Config::parse(text);
  if (!config.ok()) return 0;
  const auto quant = moeflux::QuantConfig::read(*config);
  if (quant.ok()) (void)quant->lookup("model.layers.0.mlp.gate");
  const auto family = moeflux::find_family(*config);
  if (!family.ok()) return 0;
  const auto spec = (*family)->read_spec(*config);
  if (spec.ok()) check(*spec);
  return 0;
}
