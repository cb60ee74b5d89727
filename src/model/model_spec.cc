#include "model/model_spec.h"

namespace moeflux {

std::vector<LayerStateSpec> state_specs(const ModelSpec& spec, const CacheTypes& types) {
  std::vector<LayerStateSpec> states;
  for (const LayerSpec& layer : spec.layers) states.push_back(layer.mixer->state(types));
  return states;
}

}  // namespace moeflux
