// Numbers kept between two bounds.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// x = cap * tanh(x / cap), in place.
struct SoftCap {
  static constexpr std::string_view kName = "soft_cap";
  Tensor x;
  float cap = 1.0f;

  Status check() const {
    return Conditions(kName).is_float("x", x).holds("cap", cap > 0.0f, "above 0").status();
  }
  std::string text() const { return line_of(kName, x); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kUpdate, "x", x);
  }
};

}  // namespace moeflux::ops
