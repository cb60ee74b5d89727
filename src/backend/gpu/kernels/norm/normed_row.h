// The norm of a row, or of a sum of two, that every group of kNormThreads makes for itself, in the
// order that norm.h states; the first group also writes it down.
#pragma once

#include "backend/gpu/kernels/norm/params.h"
#include "backend/gpu/kernels/norm/sums.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A thread's columns of a row, four in every 1024.
MF_FN u32 made_column(MF_T t, u32 v) { return (v * kNormThreads + t.index) * 4u; }

/// rms_norm(base + addend) * weight, or of the base alone.
struct NormedRow {
  MF_GLOBAL(const f32) base;
  MF_GLOBAL(const f32) addend;
  MF_GLOBAL(const f32) weight;
  MF_GLOBAL(f32) sum;
  MF_GLOBAL(f32) normed;
  u32 cols;
  u32 adds;
  f32 epsilon;

  MF_FN_MEMBER void prefetch_weight(MF_T t) const {
    for (u32 c = t.index * 32u; c < cols; c += t.threads * 32u) prefetch(t, weight + c);
  }
  MF_FN_MEMBER F4 load(u32 c) const {
    const F4 four = load4(base + c);
    return adds != 0u ? plus(four, load4(addend + c)) : four;
  }
  /// The same for a row of up to kNormNarrowCols, in every SIMD group by itself.
  MF_FN_MEMBER f32 narrow_squares(MF_T t) const {
    f32 own = 0.0f;
    for (u32 c = t.lane * 4u; c < cols; c += 128u) own = add_squares(own, load(c));
    return simd_sum(t, own);
  }
  /// Columns c to c + 3 from what load() gave; the first group writes both down.
  MF_FN_MEMBER F4 make(MF_T t, u32 c, F4 four, f32 factor, F4 scales) const {
    F4 scaled;
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) scaled.v[k] = four.v[k] * factor * scales.v[k];
    if (t.group.x == 0u) {
      if (adds != 0u) store4(sum + c, four);
      store4(normed + c, scaled);
    }
    return scaled;
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
