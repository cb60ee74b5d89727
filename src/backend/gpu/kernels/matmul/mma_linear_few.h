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

template <u32 BITS, u32 TOKENS, u32 ROWS, u32 TYPE>
MF_FN void mma_linear_few(MF_T t, MF_PARAMS(MmaLinearParams) p, u32 which, MF_GLOBAL(const u8) data,
                          MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                          MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                          MF_GLOBAL(f32) out) {
  const MmaMatrix m = p.matrices[which];
  const MmaPart<BITS> part = MmaPart<BITS>::of_matrix(t, m, p.cols, data, scales, biases);
  const MmaFewUnits units = MmaFewUnits::of_walk(p.walk);
  const u32 first_tile = (t.group.x - p.first_group[which]) * units.sets * ROWS;
  mma_few_issue<BITS, ROWS, TYPE>(t, units, &part, first_tile);
  await_inputs(t);
  const u32 first = t.group.y * TOKENS;
  const MmaFewInOrder numbers = {first, p.tokens - 1u};
  MmaFewTokens<TOKENS> tokens = {split, MF_CAST(const u32, split_sums), {0u}, {0u}};
  tokens.begin(t, p.cols, MmaFewSums<BITS, TOKENS, ROWS, TYPE>::kSumWords, &numbers);
  mma_few_multiply<BITS, TOKENS, ROWS, TYPE>(t, units, &part, p.cols, &tokens);
  const u32 rows = units.sets * (ROWS * kMmaRows);
  const u32 count = p.tokens - first < TOKENS ? p.tokens - first : TOKENS;
  for (u32 i = t.index; i < rows * count; i += t.threads) {
    const u32 token = i / rows;
    const u32 row = first_tile * kMmaRows + (i - token * rows);
    if (row >= m.rows) continue;
    out[(first + token) * p.out_strides[which] + row] =
        mma_few_sum<TOKENS, ROWS>(t, units, i - token * rows, token);
  }
}

/// 4 bits and 8, only 4, or GGML's types: one of them, or any.
template <u32 BITS, u32 TOKENS, u32 TYPE>
MF_FN void mma_linear_few_of(MF_T t, MF_PARAMS(MmaLinearParams) p, u32 which,
                             MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                             MF_GLOBAL(const u8) biases, MF_GLOBAL(const u32) split,
                             MF_GLOBAL(const f32) sums, MF_GLOBAL(f32) out) {
  if (BITS != 8u) {
    mma_linear_few<BITS, TOKENS, kMmaFewTiles, TYPE>(t, p, which, data, scales, biases, split, sums,
                                                     out);
  } else if (p.matrices[which].bits == 4u) {
    mma_linear_few<4u, TOKENS, 1u, TYPE>(t, p, which, data, scales, biases, split, sums, out);
  } else {
    mma_linear_few<8u, TOKENS, 1u, TYPE>(t, p, which, data, scales, biases, split, sums, out);
  }
}

// Group x: so many sets of tiles of one of the matrices as MmaWalk::tiles says; y: TOKENS
// tokens. Up to 256 threads.
#define MF_MMA_LINEAR_FEW(name, BITS, TOKENS, TYPE)                                           \
  MF_FITS(kMmaThreads, 2u)                                                                    \
  MF_KERNEL(name, MmaLinearParams, MF_MMA_MATRICES, MF_READ(12, u32, split),                  \
            MF_READ(13, f32, split_sums), MF_WRITE(14, f32, out0), MF_WRITE(15, f32, out1),   \
            MF_WRITE(16, f32, out2), MF_WRITE(17, f32, out3)) {                               \
    MF_THREAD_EARLY;                                                                          \
    u32 which = 0u;                                                                           \
    MF_UNROLL                                                                                 \
    for (u32 i = 1u; i < kMmaMatricesMax; ++i) {                                              \
      if (i < p.count && t.group.x >= p.first_group[i]) which = i;                            \
    }                                                                                         \
    mma_linear_few_of<BITS, TOKENS, TYPE>(t, p, which, MF_MMA_OF(which, data),                \
                                          MF_MMA_OF(which, scales), MF_MMA_OF(which, biases), \
                                          split, split_sums, MF_MMA_OF(which, out));          \
  }
MF_MMA_LINEAR_FEW(mma_linear_t8, 8u, 8u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_t16, 8u, 16u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_t32, 8u, 32u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_w4_t8, 4u, 8u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_w4_t16, 4u, 16u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_w4_t32, 4u, 32u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_ggml_t8, kMmaGgml, 8u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_ggml_t16, kMmaGgml, 16u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_ggml_t32, kMmaGgml, 32u, kMmaAnyType)
MF_MMA_LINEAR_FEW(mma_linear_q4_0_t8, kMmaGgml, 8u, kGgml_q4_0)
MF_MMA_LINEAR_FEW(mma_linear_q4_k_t8, kMmaGgml, 8u, kGgml_q4_k)
MF_MMA_LINEAR_FEW(mma_linear_q6_k_t8, kMmaGgml, 8u, kGgml_q6_k)
#undef MF_MMA_LINEAR_FEW

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
