#include "model/model_spec.h"

#include <algorithm>

namespace moeflux {

std::vector<LayerStateSpec> state_specs(const ModelSpec& spec, const CacheTypes& types) {
  std::vector<LayerStateSpec> states;
  for (const LayerSpec& layer : spec.layers) {
    states.push_back(layer.mixer->state(types));
    // Behind the mixer's: what convolutions have seen, oldest first.
    for (int i = 0; i < 2 && layer.out_conv_taps > 0; ++i) {
      states.back().tensors.push_back(
          {.extent = StateExtent::kFixed, .shape = {layer.out_conv_taps - 1, spec.hidden_size}});
    }
    if (layer.ngrams.conv_past() == 0) continue;
    states.back().tensors.push_back(
        {.extent = StateExtent::kFixed,
         .shape = {layer.ngrams.conv_past(), spec.streams.count * spec.hidden_size}});
  }
  return states;
}

const MoeSpec& last_moe(const ModelSpec& spec) {
  const auto found = std::find_if(spec.layers.rbegin(), spec.layers.rend(),
                                  [](const LayerSpec& layer) { return layer.moe.num_experts > 0; });
  return found == spec.layers.rend() ? spec.layers.back().moe : found->moe;
}

}  // namespace moeflux
