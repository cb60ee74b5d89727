#include "backend/ops/root_dots.h"

#include "base/format.h"

namespace moeflux::ops {

Status RootDots::check() const {
  return Conditions(kName)
      .is_packed("a", a, a.shape)
      .is_packed("b", b, a.shape)
      .has("out", out, row_count(a))
      .status();
}

std::string RootDots::text() const {
  return formatted("root_dots {} = {}", out.shape.to_string(), a.shape.to_string());
}

}  // namespace moeflux::ops
