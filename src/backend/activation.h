// Activations, and the gated unit of networks.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace moeflux {

enum class Activation : uint8_t {
  kSilu,
  kSigmoid,
  kGeluTanh,
  kIdentity,
  kRelu,
  kCappedSilu,  // of gated units alone
  kSoftplus,    // log(1 + e^x)
  kSoftCapped,  // of gated units alone
  kGelu,        // x times the normal distribution's share below x
};

/// "silu", "capped_silu".
constexpr std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kSigmoid:
      return "sigmoid";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kIdentity:
      return "identity";
    case Activation::kRelu:
      return "relu";
    case Activation::kCappedSilu:
      return "capped_silu";
    case Activation::kSoftplus:
      return "softplus";
    case Activation::kSoftCapped:
      return "soft_capped";
    case Activation::kGelu:
      return "gelu";
  }
  __builtin_unreachable();
}

/// A gated unit: (clamp(up, -limit, limit) + up_offset) * g * sigmoid(alpha * g) with
/// g = min(gate, limit) for kSilu; gelu_tanh(gate) * up for kGeluTanh and relu(gate) * up for
/// kRelu, which know no clamp; min(silu(gate), limit) * clamp(up, -limit, limit) for kCappedSilu.
/// kSoftCapped is limit * tanh(gate / limit) * sigmoid(gate) * alpha * tanh(up / alpha).
/// The defaults are SwiGLU; gpt-oss sets alpha 1.702, limit 7, up_offset 1. A network without a
/// gate whose unit is relu(up)^2 has kRelu and up for its gate.
struct GluOptions {
  Activation activation = Activation::kSilu;  // one that is_gated_unit()
  float alpha = 1.0f;
  float limit = std::numeric_limits<float>::infinity();
  float up_offset = 0.0f;

  bool operator==(const GluOptions&) const = default;
};

/// Whether GluOptions may have it.
constexpr bool is_gated_unit(Activation activation) {
  return activation == Activation::kSilu || activation == Activation::kGeluTanh ||
         activation == Activation::kRelu || activation == Activation::kCappedSilu ||
         activation == Activation::kSoftCapped;
}

}  // namespace moeflux
