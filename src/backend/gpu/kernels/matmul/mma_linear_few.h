// Products on matrix units for a few tokens: up to four matrices times the same rows.
#pragma once

#include "backend/gpu/kernels/matmul/mma_few.h"
#include "backend/gpu/kernels/matmul/mma_operands.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Tokens one behind another; past the last one it is multiplied again, and not stored.
struct MmaFewInOrder {
  u32 first;
  u32 last;

  MF_FN_MEMBER u32 row(u32 token) const { return first + token < last ? first + token : last; }
};

template <u32 BITS, u32 TILES, u32 ROWS>
MF_FN void mma_linear_few(MF_T t, MF_PARAMS(MmaLinearParams) p, u32 which, MF_GLOBAL(const u8) data,
                          MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                          MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                          MF_GLOBAL(f32) out) {
  const MmaMatrix m = p.matrices[which];
  const MmaPart<BITS> part = MmaPart<BITS>::of_matrix(t, m, p.cols, data, scales, biases);
  const MmaFewUnits units = MmaFewUnits::of_walk(p.walk);
  const u32 first_tile = (t.group.x - p.first_group[which]) * units.sets * ROWS;
  mma_few_issue<BITS, ROWS>(t, units, &part, first_tile);
  await_inputs(t);
  const u32 first = t.group.y * (TILES * 8u);
  const MmaFewInOrder numbers = {first, p.tokens - 1u};
  MmaFewTokens<TILES> tokens = {split, MF_CAST(const u32, split_sums), {0u}, {0u}};
  tokens.begin(t, p.cols, MmaFewSums<BITS, TILES, ROWS>::kSumWords, &numbers);
  mma_few_multiply<BITS, TILES, ROWS>(t, units, &part, p.cols, &tokens);
  const u32 rows = units.sets * (ROWS * kMmaRows);
  const u32 count = p.tokens - first < TILES * 8u ? p.tokens - first : TILES * 8u;
  for (u32 i = t.index; i < rows * count; i += t.threads) {
    const u32 token = i / rows;
    const u32 row = first_tile * kMmaRows + (i - token * rows);
    if (row >= m.rows) continue;
    out[(first + token) * p.out_strides[which] + row] =
        mma_few_sum<TILES, ROWS>(t, units, i - token * rows, token);
  }
}

/// 4 bits and 8, only 4, or GGML's types.
template <u32 BITS, u32 TILES>
MF_FN void mma_linear_few_of(MF_T t, MF_PARAMS(MmaLinearParams) p, u32 which,
                             MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                             MF_GLOBAL(const u8) biases, MF_GLOBAL(const u32) split,
                             MF_GLOBAL(const f32) sums, MF_GLOBAL(f32) out) {
  if (BITS != 8u) {
    mma_linear_few<BITS, TILES, kMmaFewTiles>(t, p, which, data, scales, biases, split, sums, out);
  } else if (p.matrices[which].bits == 4u) {
    mma_linear_few<4u, TILES, 1u>(t, p, which, data, scales, biases, split, sums, out);
  } else {
    mma_linear_few<8u, TILES, 1u>(t, p, which, data, scales, biases, split, sums, out);
  }
}

// Group x: so many sets of tiles of one of the matrices as MmaWalk::tiles says; y: TILES * 8
// tokens. Up to 256 threads.
#define MF_MMA_LINEAR_FEW(name, BITS, TILES)                                                      \
  MF_FITS(kMmaThreads, 2u)                                                                        \
  MF_KERNEL(name, MmaLinearParams, MF_MMA_MATRICES, MF_READ(12, u32, split),                      \
            MF_READ(13, f32, split_sums), MF_WRITE(14, f32, out0), MF_WRITE(15, f32, out1),       \
            MF_WRITE(16, f32, out2), MF_WRITE(17, f32, out3)) {                                   \
    MF_THREAD_EARLY;                                                                              \
    u32 which = 0u;                                                                               \
    MF_UNROLL                                                                                     \
    for (u32 i = 1u; i < kMmaMatricesMax; ++i) {                                                  \
      if (i < p.count && t.group.x >= p.first_group[i]) which = i;                                \
    }                                                                                             \
    mma_linear_few_of<BITS, TILES>(t, p, which, MF_MMA_OF(which, data), MF_MMA_OF(which, scales), \
                                   MF_MMA_OF(which, biases), split, split_sums,                   \
                                   MF_MMA_OF(which, out));                                        \
  }
MF_MMA_LINEAR_FEW(mma_linear_t8, 8u, 1u)
MF_MMA_LINEAR_FEW(mma_linear_t16, 8u, 2u)
MF_MMA_LINEAR_FEW(mma_linear_t32, 8u, 4u)
MF_MMA_LINEAR_FEW(mma_linear_w4_t8, 4u, 1u)
MF_MMA_LINEAR_FEW(mma_linear_w4_t16, 4u, 2u)
MF_MMA_LINEAR_FEW(mma_linear_w4_t32, 4u, 4u)
MF_MMA_LINEAR_FEW(mma_linear_ggml_t8, kMmaGgml, 1u)
MF_MMA_LINEAR_FEW(mma_linear_ggml_t16, kMmaGgml, 2u)
MF_MMA_LINEAR_FEW(mma_linear_ggml_t32, kMmaGgml, 4u)
#undef MF_MMA_LINEAR_FEW

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
