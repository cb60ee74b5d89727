#include "backend/ops/head_linear_transposed.h"

#include "base/format.h"

namespace moeflux::ops {

Status HeadLinearTransposed::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 3);
  if (x.shape.rank() != 3) return c.status();
  const int64_t heads = x.dim(1);
  return c.equal("columns of x", x.dim(2), rows.rows_per_head)
      .is("out", out, {x.dim(0), heads, weight.cols})
      .holds("weight",
             (heads - 1) * rows.head_stride + rows.row_begin + rows.rows_per_head <= weight.rows,
             "rows for every head of x")
      .status();
}

Cost HeadLinearTransposed::cost() const {
  return {weight_bytes(weight.format, x.dim(1) * rows.rows_per_head, weight.cols),
          product(x.num_elements(), weight.cols, 1)};
}

std::string HeadLinearTransposed::text() const {
  return formatted("head_linear_transposed {} = {} x {}", out.shape.to_string(),
                   x.shape.to_string(), weight.format.to_string());
}

}  // namespace moeflux::ops
