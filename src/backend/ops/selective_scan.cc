#include "backend/ops/selective_scan.h"

#include "base/format.h"

namespace moeflux::ops {

Status SelectiveScan::check() const {
  const ScanOptions& o = options;
  Conditions c(kName);
  c.holds("options", o.groups > 0 && o.heads % o.groups == 0, "groups that divide the heads")
      .equal("extents of xbc", xbc.shape.rank(), 2);
  if (o.groups <= 0 || xbc.shape.rank() != 2) return c.status();
  const int64_t n = xbc.dim(0);
  c.is("xbc", xbc, {n, o.row_width()})
      .is("out", out, {n, o.heads, o.head_dim})
      .is("dt", dt, {n, o.heads})
      .has("a_log", weights.a_log, o.heads)
      .has("dt_bias", weights.dt_bias, o.heads)
      .has("skip", weights.skip, o.heads);
  int64_t rows = 0;
  for (const StateRows& s : sequences) {
    rows += s.rows;
    c.is_packed("state", s.state, {o.heads, o.state_dim, o.head_dim});
  }
  return c.equal("rows of sequences", rows, n).status();
}

Cost SelectiveScan::cost() const {
  uint64_t sum = 0;
  for (const StateRows& s : sequences) sum += 2 * product(s.rows, s.state.num_elements(), 1);
  return {.multiply_adds = sum};
}

std::string SelectiveScan::text() const {
  return formatted("selective_scan {} = {} state {}", out.shape.to_string(), xbc.shape.to_string(),
                   sequences.front().state.shape.to_string());
}

}  // namespace moeflux::ops
