#include "backend/ops/pool_rows.h"

#include "base/format.h"

namespace moeflux::ops {

Status PoolRows::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 2);
  if (x.shape.rank() != 2) return c.status();
  const int64_t n = x.dim(0);
  const int64_t cols = x.dim(1);
  const bool weighs = !gates.gate.is_null();
  c.is_packed("x", x, x.shape)
      .is_packed("out", out, {n, gates.overlaps ? cols / 2 : cols})
      .holds("x", x, !gates.overlaps || cols % 2 == 0, "two halves where pools overlap")
      .holds("unit", unit >= 2 && unit <= kPoolMax, "2 to 128")
      .has("positions", positions, n, DType::kI32)
      .holds("gate", gates.gate, weighs || !gates.overlaps, "one where pools overlap");
  if (weighs) c.is_packed("gate", gates.gate, x.shape).has("bias", gates.bias, unit * cols);
  int64_t rows = 0;
  for (const StateRows& s : sequences) {
    rows += s.rows;
    if (s.rows == 0) continue;
    c.is_packed("state", s.state, {gates.kept_rows(unit), (weighs ? 2 : 1) * cols});
  }
  return c.equal("rows of sequences", rows, n).status();
}

std::string PoolRows::text() const {
  return formatted("pool_rows {} of {}{}{}", out.shape.to_string(), unit,
                   gates.gate.is_null() ? "" : " weighed", gates.overlaps ? " overlapped" : "");
}

}  // namespace moeflux::ops
