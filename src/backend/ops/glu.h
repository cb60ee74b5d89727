// A gated unit.
#pragma once

#include <string>
#include <string_view>

#include "backend/activation.h"
#include "backend/operation.h"
#include "base/format.h"

namespace moeflux::ops {

/// out = glu(gate, up), elementwise. out may be gate or up.
struct Glu {
  static constexpr std::string_view kName = "glu";
  Tensor out;
  Tensor gate;
  Tensor up;
  GluOptions options;

  Status check() const {
    return Conditions(kName)
        .is_float("out", out)
        .is("gate", gate, out.shape)
        .is("up", up, out.shape)
        .holds("options.activation", is_gated_unit(options.activation),
               "silu, gelu_tanh, relu, capped_silu or soft_capped")
        .status();
  }
  std::string text() const {
    return formatted("glu_{} {}", activation_name(options.activation), out.shape.to_string());
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "gate", gate);
    visit(Use::kRead, "up", up);
  }
};

}  // namespace moeflux::ops
