#include "backend/ops/add.h"

#include "base/format.h"

namespace moeflux::ops {

Status Add::check() const {
  return Conditions(kName)
      .is_float("out", out)
      .is("a", a, out.shape)
      .is("b", b, out.shape)
      .status();
}

std::string Add::text() const { return formatted("add {}", out.shape.to_string()); }

}  // namespace moeflux::ops
