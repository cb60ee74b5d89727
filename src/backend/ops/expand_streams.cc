#include "backend/ops/expand_streams.h"

#include "base/format.h"

namespace moeflux::ops {

Status ExpandStreams::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 3);
  if (x.shape.rank() != 3) return c.status();
  const int64_t n = x.dim(0);
  const int64_t streams = x.dim(1);
  c.is_packed("x", x, x.shape)
      .is_packed("out", out, x.shape)
      .holds("out", !have_overlap(out, x), "apart from x")
      .holds("x", x, streams <= kStreamsMax, "at most 5 streams")
      .is("branch", branch, {n, x.dim(2)})
      .is_packed("write", gates.write, {n, streams});
  c.holds("write", gates.write, gates.mix.is_null() || !gates.write_is_logits,
          "gates where streams mix");
  if (!gates.mix.is_null()) c.is_packed("mix", gates.mix, {n, streams, streams});
  return c.status();
}

std::string ExpandStreams::text() const {
  return formatted("expand_streams {} + {}{}", out.shape.to_string(), branch.shape.to_string(),
                   gates.mix.is_null() ? "" : " mixed");
}

}  // namespace moeflux::ops
