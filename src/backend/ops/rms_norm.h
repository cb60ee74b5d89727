// Root mean square normalization of rows.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// out = x / sqrt(mean(x^2) + eps) * weight over the innermost extent. weight f32 [cols],
/// contiguous, or [some, cols]: row r takes its row r % some; null: ones. out may be x.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  Tensor out;
  Tensor x;
  Tensor weight;
  float eps = 0.0f;

  Status check() const;
  Cost cost() const { return {}; }
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit_if(visit, Use::kRead, "weight", weight);
  }
};

}  // namespace moeflux::ops
