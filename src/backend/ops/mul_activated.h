// A tensor times activated gates.
#pragma once

#include <string>
#include <string_view>

#include "backend/activation.h"
#include "backend/operation.h"

namespace moeflux::ops {

/// out = x * activation(gate), elementwise. gate has x's shape, or innermost extent 1 (one gate a
/// row). out may be x.
struct MulActivated {
  static constexpr std::string_view kName = "mul_activated";
  Tensor out;
  Tensor x;
  Tensor gate;
  Activation activation = Activation::kSilu;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "gate", gate);
  }
};

}  // namespace moeflux::ops
