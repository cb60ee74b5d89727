// Per head with the matrix transposed: out[t, h, c] = sum over r of x[t, h, r] * W[row(h, r), c].
#pragma once

#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/matmul/weights.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A thread a column of TOKENS tokens; parts of rows in order. Shared: x of some rows, token by
/// token.
template <u32 TOKENS>
MF_FN void head_columns(MF_T t, MF_PARAMS(LinearParams) p, MF_GLOBAL(const u8) data,
                        MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                        MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, 0u);
  const u32 col = t.group.x * t.threads + t.index;
  const u32 own = col < p.weight.cols ? col : p.weight.cols - 1u;
  const u32 token = t.group.y * TOKENS;
  const u64 head_row = static_cast<u64>(t.group.z) * p.head_stride + p.row_begin;
  f32 totals[TOKENS];
  MF_UNROLL
  for (u32 j = 0u; j < TOKENS; ++j) totals[j] = 0.0f;
  for (u32 first = 0u; first < p.rows_per_head; first += kHeadStageRows) {
    const u32 left = p.rows_per_head - first;
    const u32 count = left < kHeadStageRows ? left : static_cast<u32>(kHeadStageRows);
    if (first > 0u) barrier(t);
    for (u32 i = t.index; i < kHeadStageRows * TOKENS; i += t.threads) {
      const u32 j = i / kHeadStageRows;
      const u32 r = i % kHeadStageRows;
      f32 value = 0.0f;
      if (r < count && token + j < p.tokens) {
        value = x[(token + j) * p.x.token_stride + t.group.z * p.x.head_stride + first + r];
      }
      staged[r * TOKENS + j] = value;
    }
    barrier(t);
    for (u32 begin = 0u; begin < count; begin += kHeadPartRows) {
      f32 sums[TOKENS];
      MF_UNROLL
      for (u32 j = 0u; j < TOKENS; ++j) sums[j] = 0.0f;
      MF_UNROLL
      for (u32 i = 0u; i < kHeadPartRows; ++i) {
        if (begin + i >= count) continue;
        const u64 row = head_row + first + begin + i;
        const f32 w = decode_at(p.weight, data, scales, biases, row, own);
        MF_UNROLL
        for (u32 j = 0u; j < TOKENS; j += 4u) {
          const F4 four = load4(staged + ((begin + i) * TOKENS + j));
          MF_UNROLL
          for (u32 k = 0u; k < 4u; ++k) sums[j + k] = mf_fma(four.v[k], w, sums[j + k]);
        }
      }
      MF_UNROLL
      for (u32 j = 0u; j < TOKENS; ++j) totals[j] = totals[j] + sums[j];
    }
  }
  MF_UNROLL
  for (u32 j = 0u; j < TOKENS; ++j) {
    if (col < p.weight.cols && token + j < p.tokens) {
      out[(token + j) * p.out.token_stride + t.group.z * p.out.head_stride + col] = totals[j];
    }
  }
}

// Group x: columns; y: a tile of tokens; z: a head.
#define MF_HEAD_COLUMNS(name, TOKENS)                                             \
  MF_KERNEL(name, LinearParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),   \
            MF_CONST(2, u8, biases), MF_READ(3, f32, x), MF_WRITE(4, f32, out)) { \
    MF_THREAD;                                                                    \
    head_columns<TOKENS>(t, p, data, scales, biases, x, out);                     \
  }
MF_HEAD_COLUMNS(head_linear_transposed_t4, 4u)
MF_HEAD_COLUMNS(head_linear_transposed_t16, 16u)
#undef MF_HEAD_COLUMNS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
