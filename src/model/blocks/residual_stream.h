// ResidualStream: what the branches of a decoder's layers read and add to.
#pragma once

#include <utility>

#include "backend/encoder.h"

namespace moeflux::blocks {

/// Has two places, so that a sum and what reads it may be one launch, in which no part overwrites
/// what another still reads.
class ResidualStream {
 public:
  /// Takes scratch of [tokens, hidden_size], which ends with the caller's scope. The first contents
  /// are the caller's to write.
  ResidualStream(Encoder& encoder, int64_t tokens, int64_t hidden_size)
      : encoder_(encoder),
        now_(encoder.scratch({tokens, hidden_size}, DType::kF32)),
        next_(encoder.scratch({tokens, hidden_size}, DType::kF32)) {}

  /// f32 [tokens, hidden_size], until the next add().
  Tensor read() const { return now_; }
  /// The place that the next add() writes: free until then.
  Tensor spare() const { return next_; }
  void add(Tensor branch) {
    encoder_.add(next_, now_, branch);
    std::swap(now_, next_);
  }

 private:
  Encoder& encoder_;
  Tensor now_;
  Tensor next_;
};

}  // namespace moeflux::blocks
