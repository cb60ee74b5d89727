// A product with a matrix of each head.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux {

/// The rows of a matrix by head: head h owns rows [h * head_stride + row_begin, +
/// rows_per_head).
struct HeadRows {
  int64_t head_stride = 0;
  int64_t row_begin = 0;
  int64_t rows_per_head = 0;
};

namespace ops {

/// Per head, out[t, h, r] = sum_c W[row(h, r), c] * x[t, h, c]. x [n, heads, cols], out [n, heads,
/// rows_per_head]; any strides but the innermost.
struct HeadLinear {
  static constexpr std::string_view kName = "head_linear";
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

}  // namespace ops
}  // namespace moeflux
