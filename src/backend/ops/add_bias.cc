#include "backend/ops/add_bias.h"

#include "base/format.h"

namespace moeflux::ops {

Status AddBias::check() const {
  return Conditions(kName).is_float("x", x).has("bias", bias, x.shape.back()).status();
}

std::string AddBias::text() const { return formatted("add_bias {}", x.shape.to_string()); }

}  // namespace moeflux::ops
