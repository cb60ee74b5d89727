#include "backend/ops/soft_cap.h"

#include "base/format.h"

namespace moeflux::ops {

Status SoftCap::check() const {
  return Conditions(kName).is_float("x", x).holds("cap", cap > 0.0f, "above 0").status();
}

std::string SoftCap::text() const { return formatted("soft_cap {}", x.shape.to_string()); }

}  // namespace moeflux::ops
