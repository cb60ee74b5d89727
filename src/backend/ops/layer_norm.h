// Layer normalization of rows.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight over the innermost extent. weight f32
/// [cols]. out may be x.
struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm";
  Tensor out;
  Tensor x;
  Tensor weight;
  float eps = 0.0f;

  Status check() const {
    return Conditions(kName)
        .is_float("out", out)
        .is("x", x, out.shape)
        .has("weight", weight, x.shape.back())
        .status();
  }
  std::string text() const { return line_of(kName, out); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "weight", weight);
  }
};

}  // namespace moeflux::ops
