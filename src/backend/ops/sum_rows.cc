#include "backend/ops/sum_rows.h"

#include "base/format.h"

namespace moeflux::ops {

Status SumRows::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 2);
  if (x.shape.rank() != 2) return c.status();
  int64_t rows = 0;
  for (const StateRows& s : sequences) {
    rows += s.rows;
    c.is_packed("state", s.state, {x.dim(1)});
  }
  return c.equal("rows of sequences", rows, x.dim(0)).status();
}

std::string SumRows::text() const { return formatted("sum_rows of {}", x.shape.to_string()); }

}  // namespace moeflux::ops
