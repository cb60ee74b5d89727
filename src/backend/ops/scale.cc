#include "backend/ops/scale.h"

#include "base/format.h"

namespace moeflux::ops {

Status Scale::check() const {
  return Conditions(kName).is_float("out", out).is("x", x, out.shape).status();
}

std::string Scale::text() const { return formatted("scale {}", out.shape.to_string()); }

}  // namespace moeflux::ops
