#include "model/model_spec.h"

#include <cmath>

namespace moeflux {

std::vector<LayerStateSpec> state_specs(const ModelSpec& spec) {
  std::vector<LayerStateSpec> states;
  for (const LayerSpec& layer : spec.layers) {
    switch (layer.mixer) {
      case MixerKind::kAttention:
        states.push_back({.kind = StateKind::kKeyValue,
                          .num_kv_heads = layer.attention.num_kv_heads,
                          .head_dim = layer.attention.head_dim,
                          .v_head_dim = layer.attention.head_dim});
        break;
      case MixerKind::kGatedDelta:
        states.push_back({.kind = StateKind::kGatedDelta,
                          .conv_taps = layer.gated_delta.conv_taps,
                          .conv_channels = layer.gated_delta.conv_channels(),
                          .value_heads = layer.gated_delta.value_heads,
                          .key_dim = layer.gated_delta.key_dim,
                          .value_dim = layer.gated_delta.value_dim});
        break;
    }
  }
  return states;
}

std::vector<float> rope_inverse_frequencies(const RopeSpec& rope) {
  std::vector<float> frequencies(static_cast<size_t>(rope.rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dim);
    frequencies[i] = static_cast<float>(1.0 / std::pow(rope.theta, exponent));
  }
  return frequencies;
}

}  // namespace moeflux
