// Products on matrix units for single tokens whose activations are made on the way: a sum and its
// norm. Made in the same way, gated heads cost a product 10 us on an H200, against 4 of a launch of
// their own: every group would take all the exponentials.
#pragma once

#include "backend/gpu/kernels/matmul/mma_linear_t1.h"
#include "backend/gpu/kernels/matmul/mma_operands.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_product.h"
#include "backend/gpu/kernels/matmul/mma_walk.h"
#include "backend/gpu/kernels/norm/normed_row.h"
#include "backend/gpu/kernels/norm/params.h"
#include "backend/gpu/kernels/norm/sums.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Half an octet a lane: an even lane has the first four columns, the next lane the others.
MF_FN void stage_mma_half(MF_T t, F4 own, u32 c, MmaOneShared shared) {
  MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, shared.integers * 4u);
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, shared.sums * 4u);
  const UnitFactor factor = unit_factor(lanes_max<16u>(t, largest_bits<4u>(own.v)));
  const MmaQuad quad = mma_quad(own.v, factor.into, shared.in_order);
  // The first stores the octet's 256s, the other its ones.
  const bool first = (t.lane & 1u) == 0u;
  const u32 other = simd_shuffle_xor(t, first ? quad.low : quad.high, 1u);
  const u32 block = c / kMmaBlock;
  store_mma_columns(staged + (block * kMmaBlockWords + (first ? 0u : kMmaBlockWords / 2u)),
                    c % kMmaBlock / 8u,
                    first ? join_quads(quad.high, other, shared.in_order)
                          : join_quads(other, quad.low, shared.in_order),
                    shared.in_order);
  store_mma_sums<16u>(t, sums, block, quad.sum, factor.out_of, shared.in_order);
}

/// A norm on its way to matrix units.
struct MmaNormedRow {
  NormedRow row;

  MF_FN_MEMBER void stage_split(MF_T, MmaWalk, u32) const {}  // all columns are needed at once
  MF_FN_MEMBER f32 squares(MF_T t, MmaOneShared shared) const {
    if (row.cols <= kNormNarrowCols) return row.narrow_squares(t);
    f32 own = 0.0f;
    MF_UNROLL
    for (u32 v = 0u; v < kMmaVectors; ++v) {
      const u32 c = made_column(t, v);
      if (c < row.cols) own = add_squares(own, row.load(c));
    }
    return group_sum(t, own, MF_SHARED_AT(t, f32, shared.parts * 4u));
  }
  MF_FN_MEMBER void stage(MF_T t, MmaWalk walk) const {
    const MmaOneShared shared = mma_one_shared(walk, walk.splits);
    const f32 factor = norm_factor(squares(t, shared), row.cols, row.epsilon);
    // Loaded again, from the nearest cache: registers are full of the matrix.
    MF_UNROLL
    for (u32 v = 0u; v < kMmaVectors; ++v) {
      const u32 c = made_column(t, v);
      if (c >= walk.splits * kMmaSplit) continue;  // all lanes or none
      F4 scaled = {{0.0f, 0.0f, 0.0f, 0.0f}};
      if (c < row.cols) scaled = row.make(t, c, row.load(c), factor, load4(row.weight + c));
      stage_mma_half(t, scaled, c, shared);
    }
  }
};

// mma_linear_t1 of a norm, which may be that of a sum.
#define MF_MMA_NORMED_ONE(name, BITS, fits)                                                      \
  MF_FITS(kMmaThreads, fits)                                                                     \
  MF_KERNEL(name, MmaNormedParams, MF_MMA_MATRICES, MF_READ(12, f32, base),                      \
            MF_READ(13, f32, addend), MF_CONST(14, f32, weight), MF_CONST(15, f32, conv_weight), \
            MF_WRITE(16, f32, conv_state), MF_WRITE(17, f32, out0), MF_WRITE(18, f32, out1),     \
            MF_WRITE(19, f32, out2), MF_WRITE(20, f32, out3), MF_WRITE(21, f32, sums),           \
            MF_WRITE(22, f32, normed), MF_WRITE(23, f32, conv_out), MF_CONST(24, f32, bias)) {   \
    MF_THREAD_EARLY;                                                                             \
    const MmaShare share = mma_share(t, p.linear);                                               \
    const u32 which = share.which;                                                               \
    MF_GLOBAL(f32) out = MF_MMA_OF(which, out);                                                  \
    const MmaRowsOut sink = {out + t.group.y * p.linear.out_strides[which],                      \
                             bias + p.linear.bias_at[which],                                     \
                             (p.linear.has_bias >> which & 1u) != 0u,                            \
                             p.linear.matrices[which].rows,                                      \
                             which == p.linear.conv_matrix ? p.linear.conv_taps : 0u,            \
                             conv_weight,                                                        \
                             conv_state,                                                         \
                             conv_out};                                                          \
    const u64 at = static_cast<u64>(t.group.y) * p.linear.cols;                                  \
    const MmaNormedRow row = {{base + at, addend + at, weight, sums + at, normed + at,           \
                               p.linear.cols, p.adds, p.epsilon}};                               \
    row.row.prefetch_weight(t);                                                                  \
    mma_share_rows<BITS>(t, p.linear, share, MF_MMA_OF(which, data), MF_MMA_OF(which, scales),   \
                         MF_MMA_OF(which, biases), &row, &sink);                                 \
  }
MF_MMA_NORMED_ONE(mma_normed_linear_t1, 8u, kMmaFits8)
MF_MMA_NORMED_ONE(mma_normed_linear_w4_t1, 4u, kMmaFits4)
MF_MMA_NORMED_ONE(mma_normed_linear_ggml_t1, kMmaGgml, kMmaFitsGgml)
#define MF_MMA_KNOWN_NORMED(X, type) \
  MF_MMA_NORMED_ONE(mma_normed_linear_##type##_t1, kGgml_##type, kMmaFitsKnown)
MF_GGML_ONE_TYPES(MF_MMA_KNOWN_NORMED, )
#undef MF_MMA_KNOWN_NORMED
#undef MF_MMA_NORMED_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
