#include "quant/formats/affine.h"

#include <algorithm>
#include <cmath>

namespace moeflux::affine {

GroupParams choose_group_params(std::span<const float> weights, int bits) {
  const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
  const float w_min = *low;
  const float w_max = *high;
  const auto levels = static_cast<float>((1u << bits) - 1u);
  constexpr float kSmallestScale = 1e-7f;
  float scale = std::max((w_max - w_min) / levels, kSmallestScale);
  const bool min_is_edge = std::abs(w_min) > std::abs(w_max);
  const float edge = min_is_edge ? w_min : w_max;
  if (!min_is_edge) scale = -scale;
  const float edge_code = std::nearbyint(edge / scale);
  if (edge_code == 0.0f) return {scale, 0.0f};
  return {edge / edge_code, edge};
}

uint32_t encode(float weight, GroupParams params, int bits) {
  const auto levels = static_cast<float>((1u << bits) - 1u);
  const float code = std::nearbyint((weight - params.bias) / params.scale);
  return static_cast<uint32_t>(std::clamp(code, 0.0f, levels));
}

}  // namespace moeflux::affine
