#include "backend/ops/rms_norm.h"

#include "base/format.h"

namespace moeflux::ops {

Status RmsNorm::check() const {
  Conditions c(kName);
  c.is_float("out", out).is("x", x, out.shape);
  if (!weight.is_null()) {
    c.is_packed("weight", weight, weight.shape)
        .holds("weight", weight, weight.shape.back() == x.shape.back(), "rows of x's columns");
  }
  return c.status();
}

std::string RmsNorm::text() const { return formatted("rms_norm {}", out.shape.to_string()); }

}  // namespace moeflux::ops
