#include "backend/ops/mul_activated.h"

#include "base/format.h"

namespace moeflux::ops {

Status MulActivated::check() const {
  return Conditions(kName)
      .is_float("out", out)
      .is("x", x, out.shape)
      .is_float("gate", gate)
      .holds("gate", gate,
             row_count(gate) == row_count(x) &&
                 (gate.shape.back() == x.shape.back() || gate.shape.back() == 1),
             "the shape of x, or innermost extent 1")
      .status();
}

std::string MulActivated::text() const {
  return formatted("mul_{} {} = {} * {}", activation_name(activation), out.shape.to_string(),
                   x.shape.to_string(), gate.shape.to_string());
}

}  // namespace moeflux::ops
