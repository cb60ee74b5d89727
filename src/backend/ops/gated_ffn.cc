#include "backend/ops/gated_ffn.h"

#include "backend/encoder.h"
#include "base/format.h"

namespace moeflux::ops {

Status GatedFfn::check() const {
  const int64_t hidden = weights.gate.cols;
  Conditions c(kName);
  c.is_packed("x", x, {x.dim(0), hidden})
      .is_packed("out", out, {x.dim(0), weights.down.rows})
      .equal("columns of up", weights.up.cols, hidden)
      .equal("rows of up", weights.up.rows, weights.gate.rows)
      .equal("columns of down", weights.down.cols, weights.gate.rows);
  if (!out_gate.is_null()) c.is("out_gate", out_gate, {x.dim(0), 1});
  return c.status();
}

// The operations that it is made of have theirs.
Cost GatedFfn::cost() const { return {}; }

std::string GatedFfn::text() const {
  return formatted("gated_ffn {} = {}", out.shape.to_string(), x.shape.to_string());
}

void GatedFfn::compose(Encoder& encoder) const {
  ScratchScope scope(encoder);
  const Shape intermediate{x.dim(0), weights.gate.rows};
  const Tensor gate = encoder.scratch(intermediate, DType::kF32);
  const Tensor up = encoder.scratch(intermediate, DType::kF32);
  const bool is_own_gate = weights.gate == weights.up;
  encoder.run(Linear{gate, x, weights.gate});
  if (!is_own_gate) encoder.run(Linear{up, x, weights.up});
  encoder.run(Glu{gate, gate, is_own_gate ? gate : up, glu});
  encoder.run(Linear{out, gate, weights.down});
  if (!out_gate.is_null()) encoder.run(MulActivated{out, out, out_gate, Activation::kSigmoid});
}

}  // namespace moeflux::ops
