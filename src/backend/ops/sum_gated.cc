#include "backend/ops/sum_gated.h"

#include "base/format.h"

namespace moeflux::ops {

Status SumGated::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 3);
  if (x.shape.rank() != 3) return c.status();
  return c.is_packed("x", x, x.shape)
      .is_packed("gates", gates, x.shape)
      .is_packed("out", out, {x.dim(0), x.dim(2)})
      .status();
}

std::string SumGated::text() const {
  return formatted("sum_gated {} of {}", out.shape.to_string(), x.shape.to_string());
}

}  // namespace moeflux::ops
