#include "backend/ops/gated_delta.h"

#include "base/format.h"

namespace moeflux::ops {

Status GatedDelta::check() const {
  const GatedDeltaOptions& o = options;
  Conditions c(kName);
  c.holds("options", o.key_heads > 0 && o.value_heads % o.key_heads == 0,
          "key heads that divide the value heads")
      .equal("extents of qkv", qkv.shape.rank(), 2);
  if (o.key_heads <= 0 || qkv.shape.rank() != 2) return c.status();
  const int64_t n = qkv.dim(0);
  c.is("qkv", qkv, {n, 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim})
      .is("out", out, {n, o.value_heads, o.value_dim})
      .is("a", a, {n, o.decays()})
      .is("b", b, {n, o.value_heads})
      .has("a_log", a_log, o.value_heads)
      .has("dt_bias", dt_bias, o.decays());
  int64_t rows = 0;
  for (const StateRows& s : sequences) {
    rows += s.rows;
    c.is_packed("state", s.state, {o.value_heads, o.key_dim, o.value_dim});
  }
  return c.equal("rows of sequences", rows, n).status();
}

Cost GatedDelta::cost() const {
  uint64_t sum = 0;
  for (const StateRows& s : sequences) sum += 3 * product(s.rows, s.state.num_elements(), 1);
  return {.multiply_adds = sum};
}

std::string GatedDelta::text() const {
  return formatted("gated_delta {} = {} state {}{}", out.shape.to_string(), qkv.shape.to_string(),
                   sequences.front().state.shape.to_string(), options.row_decay ? " by rows" : "");
}

}  // namespace moeflux::ops
