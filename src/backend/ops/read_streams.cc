#include "backend/ops/read_streams.h"

#include "base/format.h"

namespace moeflux::ops {

Status ReadStreams::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 3);
  if (x.shape.rank() != 3) return c.status();
  const int64_t n = x.dim(0);
  const int64_t streams = x.dim(1);
  const int64_t logits_each = (kinds() == 3 ? 2 + streams : kinds()) * streams;
  c.is_packed("x", x, x.shape)
      .holds("x", x, streams <= kStreamsMax, "at most 5 streams")
      .is_packed("out", out, {n, x.dim(2)})
      .is_packed("logits", logits, {n, logits_each})
      .has("options.scale", options.scale, kinds())
      .has("options.base", options.base, logits_each);
  c.holds("write", gates.write, !gates.write_is_logits, "gates, not logits");
  if (kinds() == 1)
    return c.holds("mix", gates.mix, gates.mix.is_null(), "null, as write is").status();
  c.is_packed("write", gates.write, {n, streams});
  if (kinds() == 3) c.is_packed("mix", gates.mix, {n, streams, streams});
  return c.status();
}

std::string ReadStreams::text() const {
  return formatted("read_streams {} of {} by {}", out.shape.to_string(), x.shape.to_string(),
                   logits.shape.to_string());
}

}  // namespace moeflux::ops
