#include "backend/encoder.h"

namespace moeflux {

void Encoder::gated_ffn(Tensor out, Tensor x, const GluWeights& weights, Tensor out_gate,
                        const GluOptions& options) {
  ScratchScope scope(*this);
  const Shape intermediate{x.dim(0), weights.gate.rows};
  const Tensor gate = scratch(intermediate, DType::kF32);
  const Tensor up = scratch(intermediate, DType::kF32);
  linear(gate, x, weights.gate);
  linear(up, x, weights.up);
  glu(gate, gate, up, options);
  linear(out, gate, weights.down);
  if (!out_gate.is_null()) mul_activated(out, out, out_gate, Activation::kSigmoid);
}

}  // namespace moeflux
