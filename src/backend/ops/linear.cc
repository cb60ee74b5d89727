#include "backend/ops/linear.h"

#include "base/format.h"

namespace moeflux::ops {

Status Linear::check() const {
  return Conditions(kName)
      .is_packed("x", x, x.shape)
      .is_packed("out", out, out.shape)
      .equal("columns of x", x.shape.back(), weight.cols)
      .equal("columns of out", out.shape.back(), weight.rows)
      .equal("rows of out", row_count(out), row_count(x))
      .status();
}

Cost Linear::cost() const {
  return {weight.size_bytes(), product(row_count(x), weight.rows, weight.cols)};
}

std::string Linear::text() const {
  return formatted("linear {} = {} x {}", out.shape.to_string(), x.shape.to_string(),
                   weight.format.to_string());
}

}  // namespace moeflux::ops
