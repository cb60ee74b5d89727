// Rows that are kept from being longer than a bound.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// x = x * min(1, longest / (|x| + 1e-6)) over the innermost extent, in place. x contiguous.
struct ClipRows {
  static constexpr std::string_view kName = "clip_rows";
  static constexpr float kAdded = 1e-6f;  // to a row's length
  Tensor x;
  float longest = 1.0f;

  Status check() const {
    return Conditions(kName)
        .is_packed("x", x, x.shape)
        .holds("longest", longest > 0.0f, "above 0")
        .status();
  }
  std::string text() const { return line_of(kName, x); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kUpdate, "x", x);
  }
};

}  // namespace moeflux::ops
