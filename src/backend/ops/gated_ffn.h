// A network for every token.
#pragma once

#include <string>
#include <string_view>

#include "backend/activation.h"
#include "backend/operation.h"

namespace moeflux {

class Encoder;

/// A gated network: down(glu(gate x, up x)).
struct GluWeights {
  Weight gate;  // [intermediate, hidden]
  Weight up;    // [intermediate, hidden]
  Weight down;  // [hidden, intermediate]
};

namespace ops {

/// out[t] = down(glu(gate x[t], up x[t])), times sigmoid(out_gate[t]) if there is one: a network
/// for every token, such as a shared expert, which a device may compute beside the experts of the
/// expert_ffn that follows. x, out [n, hidden] contiguous; out_gate f32 [n, 1] or null. Takes
/// scratch for two tensors [n, intermediate]; made of other operations unless a device knows
/// better.
struct GatedFfn {
  static constexpr std::string_view kName = "gated_ffn";
  Tensor out;
  Tensor x;
  GluWeights weights;
  Tensor out_gate;
  GluOptions glu;

  Status check() const;
  Cost cost() const;
  std::string text() const;
  void compose(Encoder& encoder) const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "gate", weights.gate);
    visit(Use::kRead, "up", weights.up);
    visit(Use::kRead, "down", weights.down);
    visit_if(visit, Use::kRead, "out_gate", out_gate);
  }
};

}  // namespace ops
}  // namespace moeflux
