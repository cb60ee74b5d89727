#include "model/model_spec.h"

#include <algorithm>

namespace moeflux {

namespace {

// The layer's rows stand one position before the tokens they are evaluated with. Behind its mixer's
// tensors it has what the layers before it gave for a token: of all tokens where a sequence can
// forget any of them, else of the last.
void add_draft_state(const ModelSpec& spec, std::vector<LayerStateSpec>& states) {
  const auto forgets = [](const LayerStateSpec& layer) {
    return std::ranges::all_of(layer.tensors, [](const StateTensor& tensor) {
      return tensor.is_per_token() && tensor.window == 0;
    });
  };
  const bool all_forget = std::all_of(states.begin(), states.end() - 1, forgets);
  std::vector<StateTensor>& own = states.back().tensors;
  for (StateTensor& tensor : own) {
    tensor.behind = 1;
    if (tensor.window > 0) ++tensor.window;
  }
  own.push_back({.shape = {spec.draft_width()}, .window = all_forget ? 0 : 2});
}

}  // namespace

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
  if (spec.draft_layers > 0) add_draft_state(spec, states);
  return states;
}

const MoeSpec& last_moe(const ModelSpec& spec) {
  const auto found = std::find_if(spec.layers.rbegin(), spec.layers.rend(),
                                  [](const LayerSpec& layer) { return layer.moe.num_experts > 0; });
  return found == spec.layers.rend() ? spec.layers.back().moe : found->moe;
}

}  // namespace moeflux
