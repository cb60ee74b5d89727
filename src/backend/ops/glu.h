// A gated unit.
#pragma once

#include <string>
#include <string_view>

#include "backend/activation.h"
#include "backend/operation.h"

namespace moeflux::ops {

/// out = glu(gate, up), elementwise. out may be gate or up.
struct Glu {
  static constexpr std::string_view kName = "glu";
  Tensor out;
  Tensor gate;
  Tensor up;
  GluOptions options;

  Status check() const;
  Cost cost() const { return {}; }
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "gate", gate);
    visit(Use::kRead, "up", up);
  }
};

}  // namespace moeflux::ops
