#include "model/model_spec.h"

#include <algorithm>

namespace moeflux {

std::vector<LayerStateSpec> state_specs(const ModelSpec& spec, const CacheTypes& types) {
  std::vector<LayerStateSpec> states;
  for (const LayerSpec& layer : spec.layers) states.push_back(layer.mixer->state(types));
  return states;
}

const MoeSpec& last_moe(const ModelSpec& spec) {
  const auto found = std::find_if(spec.layers.rbegin(), spec.layers.rend(),
                                  [](const LayerSpec& layer) { return layer.moe.num_experts > 0; });
  return found == spec.layers.rend() ? spec.layers.back().moe : found->moe;
}

}  // namespace moeflux
