#include "backend/ops/combine_experts.h"

#include "base/format.h"

namespace moeflux::ops {

Status CombineExperts::check() const {
  Conditions c(kName);
  c.is_float("out", out).equal("extents of weights", routes.weights.shape.rank(), 2);
  if (routes.weights.shape.rank() != 2) return c.status();
  return c.is_packed("weights", routes.weights, {row_count(out), routes.weights.dim(1)})
      .is_packed("slots", slots, slots.shape)
      .equal("rows of slots", row_count(slots), routes.weights.num_elements())
      .equal("columns of slots", slots.shape.back(), out.shape.back())
      .status();
}

std::string CombineExperts::text() const {
  return formatted("combine_experts {} = {}", out.shape.to_string(), slots.shape.to_string());
}

}  // namespace moeflux::ops
