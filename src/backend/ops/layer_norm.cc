#include "backend/ops/layer_norm.h"

#include "base/format.h"

namespace moeflux::ops {

Status LayerNorm::check() const {
  return Conditions(kName)
      .is_float("out", out)
      .is("x", x, out.shape)
      .has("weight", weight, x.shape.back())
      .status();
}

std::string LayerNorm::text() const { return formatted("layer_norm {}", out.shape.to_string()); }

}  // namespace moeflux::ops
