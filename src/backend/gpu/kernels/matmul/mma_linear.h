// Products on matrix units for many tokens: up to four matrices times the same rows.
#pragma once

#include "backend/gpu/kernels/matmul/mma_ggml_multiply.h"
#include "backend/gpu/kernels/matmul/mma_multiply.h"
#include "backend/gpu/kernels/matmul/mma_operands.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_stages.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

template <u32 BITS>
MF_FN void mma_linear_tokens(MF_T t, MF_PARAMS(MmaLinearParams) p, u32 which,
                             MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                             MF_GLOBAL(const u8) biases, MF_GLOBAL(const u32) split,
                             MF_GLOBAL(const f32) split_sums, MF_GLOBAL(f32) out) {
  MF_SHARED(u32) numbers = MF_SHARED_AT(t, u32, 0u);
  const u32 token = t.group.y * p.tile;
  const u32 last = p.tokens - 1u;
  // Past the last token its row is multiplied again, and not stored.
  if (t.index < MmaTokens<BITS>::kNumbers) {
    const u32 own = token + t.index < last ? token + t.index : last;
    numbers[t.index] = own;
    numbers[MmaTokens<BITS>::kNumbers + t.index] = own;
  }
  barrier(t);
  const u32 row = (t.group.x - p.first_group[which]) * kMmaGroupRows + t.simd * kMmaRows;
  const u32 count = p.tokens - token < p.tile ? p.tokens - token : p.tile;
  const MmaMatrix m = p.matrices[which];
  const MmaMany many = {m, p.cols, p.tile, p.stages, p.walk.place_words, split, split_sums};
  const MmaRows rows[2] = {{data, scales, biases, row, m.skew},
                           {data, scales, biases, row + kMmaHalfRows, m.skew}};
  const MmaOutput output = {out, p.out_strides[which], row, m.rows, count, 0u, kFormatF32};
  MmaTokens<BITS>::multiply(t, many, rows, count, &output);
}

// Group x: 128 rows of one of the matrices; y: a tile of tokens. 256 threads.
#define MF_MMA_LINEAR(name, BITS, fits)                                                          \
  MF_FITS(kMmaThreads, fits)                                                                     \
  MF_KERNEL(name, MmaLinearParams, MF_MMA_MATRICES, MF_READ(12, u32, split),                     \
            MF_READ(13, f32, split_sums), MF_WRITE(14, f32, out0), MF_WRITE(15, f32, out1),      \
            MF_WRITE(16, f32, out2), MF_WRITE(17, f32, out3)) {                                  \
    MF_THREAD;                                                                                   \
    u32 which = 0u;                                                                              \
    MF_UNROLL                                                                                    \
    for (u32 i = 1u; i < kMmaMatricesMax; ++i) {                                                 \
      if (i < p.count && t.group.x >= p.first_group[i]) which = i;                               \
    }                                                                                            \
    mma_linear_tokens<BITS>(t, p, which, MF_MMA_OF(which, data), MF_MMA_OF(which, scales),       \
                            MF_MMA_OF(which, biases), split, split_sums, MF_MMA_OF(which, out)); \
  }
MF_MMA_LINEAR(mma_linear, 8u, 2u)
MF_MMA_LINEAR(mma_linear_ggml, kMmaGgml, 1u)
#undef MF_MMA_LINEAR

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
