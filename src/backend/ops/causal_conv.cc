#include "backend/ops/causal_conv.h"

#include "base/format.h"

namespace moeflux::ops {

Status CausalConv::check() const {
  Conditions c(kName);
  c.is_float("x", x).equal("extents of x", x.shape.rank(), 2);
  c.equal("extents of weight", weight.shape.rank(), 2);
  if (x.shape.rank() != 2 || weight.shape.rank() != 2) return c.status();
  const int64_t channels = x.dim(1);
  const int64_t taps = weight.dim(1);
  c.is("out", out, x.shape)
      .is_packed("weight", weight, {channels, taps})
      .holds("weight", weight, taps >= 1, "a tap")
      .holds("options.activation",
             options.activation == Activation::kSilu || options.activation == Activation::kIdentity,
             "silu or identity");
  if (!options.bias.is_null()) c.has("bias", options.bias, channels);
  int64_t rows = 0;
  for (const StateRows& s : sequences) {
    rows += s.rows;
    c.is_packed("state", s.state, {taps - 1, channels});
  }
  return c.equal("rows of sequences", rows, x.dim(0)).status();
}

std::string CausalConv::text() const {
  return formatted("causal_conv {} taps {} {}{}", out.shape.to_string(), weight.dim(1),
                   activation_name(options.activation), options.bias.is_null() ? "" : " bias");
}

}  // namespace moeflux::ops
