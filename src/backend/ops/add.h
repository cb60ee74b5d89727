// The sum of two tensors.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// out = a + b. out may be a or b.
struct Add {
  static constexpr std::string_view kName = "add";
  Tensor out;
  Tensor a;
  Tensor b;

  Status check() const {
    return Conditions(kName)
        .is_float("out", out)
        .is("a", a, out.shape)
        .is("b", b, out.shape)
        .status();
  }
  std::string text() const { return line_of(kName, out); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "a", a);
    visit(Use::kRead, "b", b);
  }
};

}  // namespace moeflux::ops
