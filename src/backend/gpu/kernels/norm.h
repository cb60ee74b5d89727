// Root mean square norms: a SIMD group a row where rows are short, a group where they are long.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// The lane's share of the sum of squares of a row: columns first, first + step, ...
MF_FN f32 partial_squares(MF_GLOBAL(const f32) row, u32 first, u32 step, u32 cols) {
  f32 sum = 0.0f;
  for (u32 c = first; c < cols; c += step) sum = mf_fma(row[c], row[c], sum);
  return sum;
}

/// One SIMD group a row.
MF_KERNEL(rms_norm_narrow, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, weight),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const u32 row = t.group.x * t.simds + t.simd;
  if (row >= p.rows) return;
  MF_GLOBAL(const f32) from = a + row_at(p.a, row);
  MF_GLOBAL(f32) to = out + row_at(p.out, row);
  const f32 squares = simd_sum(t, partial_squares(from, t.lane, 32u, p.cols));
  const f32 factor = 1.0f / mf_sqrt(squares / static_cast<f32>(p.cols) + p.factor);
  for (u32 c = t.lane; c < p.cols; c += 32u) {
    const f32 scaled = from[c] * factor;
    to[c] = p.has_weight != 0u ? scaled * weight[c] : scaled;
  }
}

/// One group a row. Shared: one float a SIMD group.
MF_KERNEL(rms_norm_wide, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, weight),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, 0u);
  MF_GLOBAL(const f32) from = a + row_at(p.a, t.group.x);
  MF_GLOBAL(f32) to = out + row_at(p.out, t.group.x);
  const f32 partial = simd_sum(t, partial_squares(from, t.index, t.threads, p.cols));
  if (t.lane == 0u) sums[t.simd] = partial;
  barrier(t);
  f32 squares = 0.0f;
  for (u32 s = 0u; s < t.simds; ++s) squares = squares + sums[s];
  const f32 factor = 1.0f / mf_sqrt(squares / static_cast<f32>(p.cols) + p.factor);
  for (u32 c = t.index; c < p.cols; c += t.threads) {
    const f32 scaled = from[c] * factor;
    to[c] = p.has_weight != 0u ? scaled * weight[c] : scaled;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
