// out = x W^T for rows of W of one head or of all: linear and head_linear.
#pragma once

#include "backend/gpu/kernels/matmul/large_tile.h"
#include "backend/gpu/kernels/matmul/matrix_tile.h"
#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Group x: ROWS rows a SIMD group; group y: a tile of tokens; group z: a head. Shared: the staged
/// x, stage_cols floats a token.
template <u32 FORMAT, u32 ROWS, u32 TOKENS>
MF_FN void linear_tile(MF_T t, MF_PARAMS(LinearParams) p, MF_GLOBAL(const u8) data,
                       MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                       MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, 0u);
  const u32 token = t.group.y * TOKENS;
  const u32 first = (t.group.x * t.simds + t.simd) * ROWS;
  const u32 head_row = t.group.z * p.head_stride + p.row_begin;
  // Rows past the end repeat the last one and are not stored: the SIMD group stays together.
  u32 rows[ROWS];
  MF_UNROLL
  for (u32 r = 0u; r < ROWS; ++r) {
    rows[r] = head_row + (first + r < p.rows_per_head ? first + r : p.rows_per_head - 1u);
  }
  f32 acc[ROWS * TOKENS];
  MF_UNROLL
  for (u32 i = 0u; i < ROWS * TOKENS; ++i) acc[i] = 0.0f;
  const u64 x_head = t.group.z * p.x.head_stride;
  for (u32 begin = 0u; begin < p.weight.cols; begin += p.stage_cols) {
    const u32 left = p.weight.cols - begin;
    const u32 count = left < p.stage_cols ? left : p.stage_cols;
    if (begin > 0u) barrier(t);
    for (u32 j = 0u; j < TOKENS; ++j) {
      stage_row(t, staged + j * p.stage_cols, x + ((token + j) * p.x.token_stride + x_head), begin,
                count, token + j >= p.tokens, p.wide);
    }
    barrier(t);
    Accumulate<FORMAT, ROWS, TOKENS>::run(t, acc, p.weight, data, scales, biases, rows, staged,
                                          p.stage_cols, begin, count);
  }
  simd_sums<ROWS * TOKENS>(t, acc);
  const u64 out_head = t.group.z * p.out.head_stride;
  MF_UNROLL
  for (u32 r = 0u; r < ROWS; ++r) {
    MF_UNROLL
    for (u32 j = 0u; j < TOKENS; ++j) {
      if (t.lane == 0u && first + r < p.rows_per_head && token + j < p.tokens) {
        out[(token + j) * p.out.token_stride + out_head + first + r] = acc[r * TOKENS + j];
      }
    }
  }
}

#define MF_LINEAR(name, FORMAT, TOKENS, fits)                                                     \
  fits MF_KERNEL(name, LinearParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),              \
                 MF_CONST(2, u8, biases), MF_READ(3, f32, x), MF_WRITE(4, f32, out)) {            \
    MF_THREAD;                                                                                    \
    linear_tile<FORMAT, TOKENS == 1u ? kRowsOfOneToken : kRowsOfTile, TOKENS>(t, p, data, scales, \
                                                                              biases, x, out);    \
  }
#define MF_LINEAR_TILES(name, FORMAT)                             \
  MF_LINEAR(name##_t1, FORMAT, 1u, MF_FITS(kLinearThreadsMax, 1)) \
  MF_LINEAR(name##_t4, FORMAT, 4u, )                              \
  MF_LINEAR(name##_t8, FORMAT, 8u, )
MF_LINEAR_TILES(linear_f32, kFormatF32)
MF_LINEAR_TILES(linear_f16, kFormatF16)
MF_LINEAR_TILES(linear_bf16, kFormatBf16)
MF_LINEAR_TILES(linear_w2, 2u)
MF_LINEAR_TILES(linear_w3, 3u)
MF_LINEAR_TILES(linear_w4, 4u)
MF_LINEAR_TILES(linear_w5, 5u)
MF_LINEAR_TILES(linear_w6, 6u)
MF_LINEAR_TILES(linear_w8, 8u)
MF_LINEAR_TILES(linear_fp8, kCoded_fp8)
MF_LINEAR_TILES(linear_any, 0u)
// Three groups of so many threads wait for their rows at once.
MF_LINEAR(linear_coded_t1, kFormatCoded, 1u, MF_FITS(kLinearThreadsMax, 3))
#undef MF_LINEAR_TILES
#undef MF_LINEAR

/// Group x: 8 rows a SIMD group; group y: 16 tokens; group z: a head.
template <u32 FORMAT>
MF_FN void linear_large_tile(MF_T t, MF_PARAMS(LinearParams) p, MF_GLOBAL(const u8) data,
                             MF_GLOBAL(const u8) scales, MF_GLOBAL(const f32) x,
                             MF_GLOBAL(f32) out) {
  const u32 token = t.group.y * kLargeTileTokens;
  const u32 first = (t.group.x * t.simds + t.simd) * kLargeTileRows;
  const u32 head_row = t.group.z * p.head_stride + p.row_begin;
  LargeTileRows rows = {p.weight,
                        data,
                        data,
                        scales,
                        scales,
                        {head_row + first, head_row + first + 4u},
                        head_row + p.rows_per_head - 1u,
                        x + t.group.z * p.x.head_stride,
                        p.x.token_stride,
                        {}};
  MF_UNROLL
  for (u32 i = 0u; i < kLargeTileCopies; ++i) {
    const u32 own = token + large_tile_token(t, i);
    rows.x_row[i] = own < p.tokens ? own : p.tokens - 1u;
  }
  LargeTileSums<FORMAT> sums;
  sums.multiply(t, &rows);
  const u32 row = first + t.lane / 4u;
  const u32 own = token + t.lane % 4u * 4u;
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    if (row < p.rows_per_head && own + i < p.tokens) {
      out[(own + i) * p.out.token_stride + t.group.z * p.out.head_stride + row] = sums.v[i];
    }
  }
}

#define MF_LINEAR_LARGE(name, FORMAT)                                             \
  MF_FITS(kLargeTileThreads, 1)                                                   \
  MF_KERNEL(name, LinearParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),   \
            MF_CONST(2, u8, biases), MF_READ(3, f32, x), MF_WRITE(4, f32, out)) { \
    MF_THREAD;                                                                    \
    static_cast<void>(biases);                                                    \
    linear_large_tile<FORMAT>(t, p, data, scales, x, out);                        \
  }
MF_LINEAR_LARGE(linear_f32_t16, kFormatF32)
MF_LINEAR_LARGE(linear_f16_t16, kFormatF16)
MF_LINEAR_LARGE(linear_bf16_t16, kFormatBf16)
MF_LINEAR_LARGE(linear_fp8_t16, kCoded_fp8)
#undef MF_LINEAR_LARGE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
