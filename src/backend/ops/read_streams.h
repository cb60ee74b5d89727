// A branch's share of a residual of several streams, and the gates that it reads by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/stream_gates.h"

namespace moeflux {

/// How read_streams() makes them, and the gates that it reads by.
struct StreamGateOptions {
  Tensor scale = {};       // f32 [3], of read, write and mix; of those that there are
  Tensor base = {};        // f32 [(2 + streams) * streams]: those of read | write | mix; the same
  int64_t iterations = 1;  // of divisions by sums
  float eps = 0.0f;
  float magnitude = 2.0f;  // of write
  float write_eps = 0.0f;
};

namespace ops {

/// out[t] = the sum over i, in order, of read[t, i] * x[t, i], and the other gates of n tokens, all
/// from logits [n, (2 + streams) * streams], which are those of read | write | mix:
///   read = sigmoid(logit * scale[0] + base) + eps;
///   write = magnitude * sigmoid(logit * scale[1] + base) + write_eps;
///   mix = softmax over the last index of (logit * scale[2] + base), + eps; then divided by (sum +
///   eps) of its columns, and iterations - 1 times of its rows and again of its columns.
/// x f32 [n, streams, cols], out [n, cols]; all contiguous. With a null mix there are read and
/// write, from logits [n, 2 * streams]; with null gates there is read alone, from [n, streams].
struct ReadStreams {
  static constexpr std::string_view kName = "read_streams";
  Tensor out;
  StreamGates gates;
  Tensor x;
  Tensor logits;
  StreamGateOptions options;

  int64_t kinds() const { return gates.write.is_null() ? 1 : gates.mix.is_null() ? 2 : 3; }
  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit_if(visit, Use::kWrite, "write", gates.write);
    visit_if(visit, Use::kWrite, "mix", gates.mix);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "logits", logits);
    visit(Use::kRead, "scale", options.scale);
    visit(Use::kRead, "base", options.base);
  }
};

}  // namespace ops
}  // namespace moeflux
