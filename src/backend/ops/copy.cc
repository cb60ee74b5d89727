#include "backend/ops/copy.h"

#include "base/format.h"

namespace moeflux::ops {

Status Copy::check() const {
  return Conditions(kName).is_float("out", out).is("x", x, out.shape).status();
}

std::string Copy::text() const { return formatted("copy {}", out.shape.to_string()); }

}  // namespace moeflux::ops
