// The gated sum of the streams of a residual.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// out[t] = sum over j, in order, of x[t, j] * sigmoid(gates[t, j]). x and gates [n, streams,
/// cols], out [n, cols]; all contiguous.
struct SumGated {
  static constexpr std::string_view kName = "sum_gated";
  Tensor out;
  Tensor x;
  Tensor gates;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "gates", gates);
  }
};

}  // namespace moeflux::ops
