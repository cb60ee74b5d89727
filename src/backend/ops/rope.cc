#include "backend/ops/rope.h"

#include "base/format.h"

namespace moeflux::ops {

Status Rope::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 3);
  if (x.shape.rank() != 3) return c.status();
  c.holds("options.rotary_dim", options.rotary_dim >= 0 && options.rotary_dim <= x.dim(2),
          "at most the columns of a head")
      .holds("options.unit", options.unit >= 1, "at least 1");
  if (options.rotary_dim < 2) return c.status();
  return c.has("positions", positions, x.dim(0), DType::kI32)
      .has("inverse_frequencies", inverse_frequencies, options.rotary_dim / 2)
      .status();
}

std::string Rope::text() const {
  return formatted("rope {} rotary {}{}{}", x.shape.to_string(), options.rotary_dim,
                   options.interleaved ? " interleaved" : "",
                   options.unit > 1 ? formatted(" by {}", options.unit) : "");
}

}  // namespace moeflux::ops
