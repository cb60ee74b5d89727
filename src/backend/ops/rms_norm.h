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

  Status check() const {
    Conditions c(kName);
    c.is_float("out", out).is("x", x, out.shape);
    if (!weight.is_null()) {
      c.is_packed("weight", weight, weight.shape)
          .holds("weight", weight, weight.shape.back() == x.shape.back(), "rows of x's columns");
    }
    return c.status();
  }
  std::string text() const { return line_of(kName, out); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit_if(visit, Use::kRead, "weight", weight);
  }
};

}  // namespace moeflux::ops
