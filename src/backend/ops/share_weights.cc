#include "backend/ops/share_weights.h"

#include "base/format.h"

namespace moeflux::ops {

Status ShareWeights::check() const {
  Conditions c(kName);
  c.is_float("logits", logits).equal("extents of logits", logits.shape.rank(), 2);
  if (logits.shape.rank() != 2) return c.status();
  return c.is_packed("out", out, logits.shape)
      .equal("extents of weights", weights.shape.rank(), 2)
      .is_packed("weights", weights, {logits.dim(0), weights.shape.back()})
      .status();
}

std::string ShareWeights::text() const {
  return formatted("share_weights {} among {} more", weights.shape.to_string(), logits.dim(1));
}

}  // namespace moeflux::ops
