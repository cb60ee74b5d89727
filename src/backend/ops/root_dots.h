// Roots of products of rows.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"
#include "base/format.h"

namespace moeflux {

/// How root_dots() makes a number of a product.
struct RootDotOptions {
  float scale = 1.0f;
  float least = 0.0f;  // under the root
};

namespace ops {

/// out[t, j] = sign(d) * sqrt(max(|d|, least)) with d = scale * (a[t, j] . b[t, j]), 0 where d is.
/// a, b f32 [n, streams, cols], contiguous; out f32 [n, streams], contiguous.
struct RootDots {
  static constexpr std::string_view kName = "root_dots";
  Tensor out;
  Tensor a;
  Tensor b;
  RootDotOptions options;

  Status check() const {
    return Conditions(kName)
        .is_packed("a", a, a.shape)
        .is_packed("b", b, a.shape)
        .has("out", out, row_count(a))
        .status();
  }
  std::string text() const {
    return formatted("root_dots {} = {}", out.shape.to_string(), a.shape.to_string());
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "a", a);
    visit(Use::kRead, "b", b);
  }
};

}  // namespace ops
}  // namespace moeflux
