#include "backend/ops/glu.h"

#include "base/format.h"

namespace moeflux::ops {

Status Glu::check() const {
  return Conditions(kName)
      .is_float("out", out)
      .is("gate", gate, out.shape)
      .is("up", up, out.shape)
      .holds("options.activation", is_gated_unit(options.activation),
             "silu, gelu_tanh, relu, capped_silu or soft_capped")
      .status();
}

std::string Glu::text() const {
  return formatted("glu_{} {}", activation_name(options.activation), out.shape.to_string());
}

}  // namespace moeflux::ops
