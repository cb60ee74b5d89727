// The norm of a row, or of a sum of two, that every group of kNormThreads makes for itself, in the
// order that norm.h states; the first group also writes it down.
#pragma once

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
  /// What columns are multiplied by before their weights. Shared: kNormLongSimds floats.
  MF_FN_MEMBER f32 find_factor(MF_T t, MF_SHARED(f32) sums) const {
    return norm_factor(squares(t, sums), cols, epsilon);
  }
  MF_FN_MEMBER f32 squares(MF_T t, MF_SHARED(f32) sums) const {
    f32 own = 0.0f;
    if (cols <= kNormNarrowCols) {  // every SIMD group by itself
      for (u32 c = t.lane * 4u; c < cols; c += 128u) own = add_squares(own, load(c));
      return simd_sum(t, own);
    }
    if (cols <= kNormMiddleCols) {
      MF_UNROLL
      for (u32 v = 0u; v < kMadeVectors / 2u; ++v) {
        const u32 c = made_column(t, v);
        if (c < cols) own = add_squares(own, load(c));
      }
      return group_sum(t, own, sums);
    }
    return long_squares(t, sums);
  }
  /// Each thread in place of kNormLongThreads / kNormThreads of those that long rows have.
  MF_FN_MEMBER f32 long_squares(MF_T t, MF_SHARED(f32) sums) const {
    f32 own[kNormShares];
    MF_UNROLL
    for (u32 q = 0u; q < kNormShares; ++q) own[q] = 0.0f;
    MF_UNROLL
    for (u32 v = 0u; v < kMadeVectors; ++v) {
      const u32 c = made_column(t, v);
      if (c < cols) own[v % kNormShares] = add_squares(own[v % kNormShares], load(c));
    }
    MF_UNROLL
    for (u32 q = 0u; q < kNormShares; ++q) {
      const f32 all = simd_sum(t, own[q]);
      if (t.lane == 0u) sums[q * (kNormThreads / 32u) + t.simd] = all;
    }
    barrier(t);
    f32 total = 0.0f;
    MF_UNROLL
    for (u32 s = 0u; s < kNormLongSimds; ++s) total = total + sums[s];
    return total;
  }
  /// Columns c to c + 3; the first group writes them, and what they are the norm of.
  MF_FN_MEMBER F4 make(MF_T t, u32 c, f32 factor) const {
    const F4 four = load(c);
    const F4 scales = load4(weight + c);
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
