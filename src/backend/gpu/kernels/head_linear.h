// Per head with the matrix transposed: out[t, h, c] = sum over r of x[t, h, r] * W[row(h, r), c].
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// A thread a column, up to 4 tokens; parts of rows in order. Group y: a tile of tokens; group z: a
/// head.
MF_KERNEL(head_linear_transposed, LinearParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),
          MF_CONST(2, u8, biases), MF_READ(3, f32, x), MF_WRITE(4, f32, out)) {
  MF_THREAD;
  const u32 col = t.group.x * t.threads + t.index;
  if (col >= p.weight.cols) return;
  const u32 token = t.group.y * 4u;
  const u64 head_row = static_cast<u64>(t.group.z) * p.head_stride + p.row_begin;
  const u64 x_head = t.group.z * p.x.head_stride;
  f32 totals[4];
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) totals[j] = 0.0f;
  for (u32 begin = 0u; begin < p.rows_per_head; begin += kHeadPartRows) {
    f32 acc[4];
    MF_UNROLL
    for (u32 j = 0u; j < 4u; ++j) acc[j] = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < kHeadPartRows; ++i) {
      const u32 r = begin + i;
      if (r >= p.rows_per_head) continue;
      const f32 w = decode_at(p.weight, data, scales, biases, head_row + r, col);
      MF_UNROLL
      for (u32 j = 0u; j < 4u; ++j) {
        if (token + j < p.tokens) {
          acc[j] = mf_fma(x[(token + j) * p.x.token_stride + x_head + r], w, acc[j]);
        }
      }
    }
    MF_UNROLL
    for (u32 j = 0u; j < 4u; ++j) totals[j] = totals[j] + acc[j];
  }
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) {
    if (token + j < p.tokens) {
      out[(token + j) * p.out.token_stride + t.group.z * p.out.head_stride + col] = totals[j];
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
