// A branch's result for all streams of a residual.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/stream_gates.h"

namespace moeflux::ops {

/// out[t, j] = write[t, j] * branch[t] + sum over i, in order, of mix[t, i, j] * x[t, i]. Without a
/// mix it is x[t, j] that is added, and write may hold logits: 2 sigmoid(write[t, j]) is the gate.
/// x and out [n, streams, cols], contiguous and apart; branch [n, cols].
struct ExpandStreams {
  static constexpr std::string_view kName = "expand_streams";
  Tensor out;
  Tensor x;
  Tensor branch;
  StreamGates gates;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "branch", branch);
    visit(Use::kRead, "write", gates.write);
    visit_if(visit, Use::kRead, "mix", gates.mix);
  }
};

}  // namespace moeflux::ops
