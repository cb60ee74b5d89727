// A bias for each column.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// x[t, c] += bias[c]. x f32 [n, cols], bias f32 [cols].
struct AddBias {
  static constexpr std::string_view kName = "add_bias";
  Tensor x;
  Tensor bias;

  Status check() const {
    return Conditions(kName).is_float("x", x).has("bias", bias, x.shape.back()).status();
  }
  std::string text() const { return line_of(kName, x); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kUpdate, "x", x);
    visit(Use::kRead, "bias", bias);
  }
};

}  // namespace moeflux::ops
