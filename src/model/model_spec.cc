#include "model/model_spec.h"

namespace moeflux {

std::vector<LayerStateSpec> state_specs(const ModelSpec& spec) {
  std::vector<LayerStateSpec> states;
  for (const LayerSpec& layer : spec.layers) {
    switch (layer.mixer) {
      case MixerKind::kAttention:
        states.push_back({.kind = StateKind::kKeyValue,
                          .num_kv_heads = layer.attention.num_kv_heads,
                          .head_dim = layer.attention.head_dim,
                          .v_head_dim = layer.attention.v_head_dim,
                          .window = layer.attention.window});
        break;
      case MixerKind::kLatentAttention:
        states.push_back({.kind = StateKind::kKeyValue,
                          .num_kv_heads = 1,
                          .head_dim = layer.latent.latent_dim(),
                          .v_head_dim = layer.latent.kv_lora_rank,
                          .values_in_keys = true});
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

}  // namespace moeflux
