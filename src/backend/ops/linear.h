// A product with a matrix.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// out[n, rows] = x[n, cols] * W^T. out and x contiguous.
struct Linear {
  static constexpr std::string_view kName = "linear";
  Tensor out;
  Tensor x;
  Weight weight;

  Status check() const;
  Cost cost() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "weight", weight);
  }
};

}  // namespace moeflux::ops
