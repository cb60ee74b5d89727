#include "backend/ops/head_linear.h"

#include "base/format.h"

namespace moeflux::ops {

Status HeadLinear::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 3);
  if (x.shape.rank() != 3) return c.status();
  const int64_t heads = x.dim(1);
  return c.equal("columns of x", x.dim(2), weight.cols)
      .is("out", out, {x.dim(0), heads, rows.rows_per_head})
      .holds("weight",
             (heads - 1) * rows.head_stride + rows.row_begin + rows.rows_per_head <= weight.rows,
             "rows for every head of x")
      .status();
}

Cost HeadLinear::cost() const {
  return {weight_bytes(weight.format, x.dim(1) * rows.rows_per_head, weight.cols),
          product(x.num_elements(), rows.rows_per_head, 1)};
}

std::string HeadLinear::text() const {
  return formatted("head_linear {} = {} x {}", out.shape.to_string(), x.shape.to_string(),
                   weight.format.to_string());
}

}  // namespace moeflux::ops
