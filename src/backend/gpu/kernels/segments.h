// The rows of sequences that have several each in one launch, as two tables of words: one for each
// sequence, and one for each block of a sequence's rows.
#pragma once

#include "backend/gpu/dialect/types.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A word: the first row of a sequence and how many it has, or the first row of a block, counted
/// from the first one of its sequence, and the number of that.
struct Segment {
  u32 first;
  u32 number;
};
MF_FN Segment segment_of(u64 word) {
  const Segment own = {static_cast<u32>(word), static_cast<u32>(word >> 32u)};
  return own;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
