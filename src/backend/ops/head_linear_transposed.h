// A product with the transpose of each head's matrix.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/ops/head_linear.h"

namespace moeflux::ops {

/// Per head with the matrix transposed, out[t, h, c] = sum_r x[t, h, r] * W[row(h, r), c]. x [n,
/// heads, rows_per_head], out [n, heads, cols].
struct HeadLinearTransposed {
  static constexpr std::string_view kName = "head_linear_transposed";
  Tensor out;
  Tensor x;
  Weight weight;
  HeadRows rows;

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
