// Rows in registers and the sums of their squares. Short rows are summed over by 32 threads, longer
// ones by 256, the longest by 1024. Thread i takes columns 4 i to 4 i + 3, then as many of the next
// turn of all threads, and so on. A norm's bits depend on that order, which is the same in every
// kernel.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Columns c to c + 3 of a row; nothing past its end.
MF_FN F4 load_columns(MF_GLOBAL(const f32) row, u32 c, u32 cols, u32 wide) {
  if (wide != 0u) return load4(row + c);
  F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    if (c + k < cols) four.v[k] = row[c + k];
  }
  return four;
}

MF_FN void store_columns(MF_GLOBAL(f32) row, u32 c, u32 cols, u32 wide, F4 four) {
  if (wide != 0u) return store4(row + c, four);
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    if (c + k < cols) row[c + k] = four.v[k];
  }
}

MF_FN f32 add_squares(f32 sum, F4 four) {
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) sum = mf_fma(four.v[k], four.v[k], sum);
  return sum;
}

MF_FN F4 plus(F4 a, F4 b) {
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) a.v[k] = a.v[k] + b.v[k];
  return a;
}

/// The sum over a group of what its SIMD groups have, in their order. Shared: one float each.
MF_FN f32 group_sum(MF_T t, f32 value, MF_SHARED(f32) sums) {
  const f32 own = simd_sum(t, value);
  if (t.lane == 0u) sums[t.simd] = own;
  barrier(t);
  f32 sum = 0.0f;
  for (u32 s = 0u; s < t.simds; ++s) sum = sum + sums[s];
  return sum;
}

MF_FN f32 norm_factor(f32 squares, u32 cols, f32 epsilon) {
  return 1.0f / mf_sqrt(squares / static_cast<f32>(cols) + epsilon);
}

/// The thread's share of a row, number `first` of `step`.
MF_FN f32 row_squares(MF_GLOBAL(const f32) row, u32 first, u32 step, u32 cols, u32 wide) {
  f32 squares = 0.0f;
  for (u32 c = first * 4u; c < cols; c += step * 4u) {
    squares = add_squares(squares, load_columns(row, c, cols, wide));
  }
  return squares;
}

/// a + factor * b
MF_FN F4 plus_times(F4 a, f32 factor, F4 b) {
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) a.v[k] = mf_fma(factor, b.v[k], a.v[k]);
  return a;
}

MF_FN F4 times(F4 a, F4 b) {
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) a.v[k] = a.v[k] * b.v[k];
  return a;
}

MF_FN F4 times(F4 a, f32 factor) {
  const F4 factors = {{factor, factor, factor, factor}};
  return times(a, factors);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
