// Residuals of several streams.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace moeflux {

/// A residual of several streams, for each of n tokens: what they get of a branch's result, and how
/// they mix. f32 and contiguous.
struct StreamGates {
  Tensor write = {};             // [n, streams]
  Tensor mix = {};               // [n, streams, streams], or null: streams do not mix
  bool write_is_logits = false;  // without a mix: 2 sigmoid(write) are the gates
};

/// Streams of a residual, at most.
constexpr int64_t kStreamsMax = 5;

}  // namespace moeflux
