// A tensor into another.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// out = x. Any strides, same shape, f32.
struct Copy {
  static constexpr std::string_view kName = "copy";
  Tensor out;
  Tensor x;

  Status check() const {
    return Conditions(kName).is_float("out", out).is("x", x, out.shape).status();
  }
  std::string text() const { return line_of(kName, out); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
  }
};

}  // namespace moeflux::ops
