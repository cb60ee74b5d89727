// Products on matrix units for single tokens, which walk as mma_walk.h says.
#pragma once

#include "backend/gpu/kernels/delta/conv_past.h"
#include "backend/gpu/kernels/matmul/mma_operands.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_walk.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Rows of one matrix, with a bias or not, which may go on through a convolution: they are its
/// channels. Or each is gated by itself.
struct MmaRowsOut {
  MF_GLOBAL(f32) out;
  MF_GLOBAL(const f32) bias;
  bool has_bias;
  u32 rows;
  u32 taps;  // 0: nothing follows, 1: a gate
  MF_GLOBAL(const f32) conv_weight;
  MF_GLOBAL(f32) conv_state;
  MF_GLOBAL(f32) conv_out;

  /// Asks for what the bias and the convolution need.
  MF_FN_MEMBER void begin(MF_T t, MmaTiles tiles) const {
    if (taps <= 1u && !has_bias) return;
    for (u32 row = tiles.first * kMmaRows + t.index; row < tiles.end * kMmaRows; row += t.threads) {
      if (row >= rows) return;
      if (has_bias) prefetch(t, bias + row);
      if (taps <= 1u) continue;
      prefetch(t, conv_weight + row * taps);
      MF_ROLLED
      for (u32 j = 0u; j + 1u < taps; ++j) prefetch(t, conv_state + (j * rows + row));
    }
  }
  MF_FN_MEMBER void take(MF_T t, MF_SHARED(f32) parts, u32 splits, u32 first_tile,
                         u32 tiles) const {
    for (u32 r = t.index; r < tiles * kMmaRows; r += t.threads) {
      const u32 row = first_tile * kMmaRows + r;
      if (row >= rows) return;
      f32 sum = sum_mma_splits(parts + (r / kMmaRows * splits * kMmaRows + r % kMmaRows), splits);
      if (has_bias) sum = sum + bias[row];
      out[row] = sum;
      if (taps == 1u) conv_out[row] = sum * sigmoid(sum);
      if (taps <= 1u) continue;
      const ConvPast past = conv_past(conv_weight, conv_state, taps, rows, row);
      conv_out[row] = silu(conv_one(&past, 0.0f, sum, conv_state, taps, rows, row));
    }
  }
};

/// The matrix of a group, and its tiles.
struct MmaShare {
  u32 which;
  MmaTiles tiles;
};

MF_FN MmaShare mma_share(MF_T t, MF_PARAMS(MmaLinearParams) p) {
  MmaShare share;
  share.which = 0u;
  MF_UNROLL
  for (u32 i = 1u; i < kMmaMatricesMax; ++i) {
    if (i < p.count && t.group.x >= p.first_group[i]) share.which = i;
  }
  const u32 all = (p.matrices[share.which].rows + kMmaRows - 1u) / kMmaRows;
  share.tiles = mma_tiles(p.walk, t.group.x - p.first_group[share.which], all);
  return share;
}

/// The products of a group's rows with what `source` stages, to `sink`.
template <u32 BITS, class Source>
MF_FN void mma_rows_of_one(MF_T t, MF_PARAMS(MmaLinearParams) p, MmaShare share,
                           MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                           MF_GLOBAL(const u8) biases, MF_LOCAL(const Source) source,
                           MF_LOCAL(const MmaRowsOut) sink) {
  MmaWalker<BITS> walker = {
      MmaPart<BITS>::of_matrix(t, p.matrices[share.which], p.cols, data, scales, biases),
      p.walk,
      share.tiles,
      {0u, 0u}};
  walker.begin(t);
  await_inputs(t);
  walker.run(t, source, sink);
}

/// 4 bits and 8, only 4, or GGML's types: matrices of 8 take twice the registers.
template <u32 BITS, class Source>
MF_FN void mma_share_rows(MF_T t, MF_PARAMS(MmaLinearParams) p, MmaShare share,
                          MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                          MF_GLOBAL(const u8) biases, MF_LOCAL(const Source) source,
                          MF_LOCAL(const MmaRowsOut) sink) {
  sink->begin(t, share.tiles);
  if (BITS != 8u || p.matrices[share.which].bits == 4u) {
    mma_rows_of_one<BITS == 8u ? 4u : BITS>(t, p, share, data, scales, biases, source, sink);
  } else {
    mma_rows_of_one<BITS>(t, p, share, data, scales, biases, source, sink);
  }
}

// Group x: tiles of rows of one of the matrices; y: a token. 256 threads or more. Rows of a single
// token may go on through a convolution. BITS is 4 if all matrices have 4, kMmaGgml if all are of
// its types, and the type if it is the same of all.
#define MF_MMA_LINEAR_ONE(name, BITS, threads, fits)                                         \
  MF_FITS(threads, fits)                                                                     \
  MF_KERNEL(name, MmaLinearParams, MF_MMA_MATRICES, MF_READ(12, f32, x),                     \
            MF_CONST(13, f32, conv_weight), MF_WRITE(14, f32, conv_state),                   \
            MF_WRITE(15, f32, out0), MF_WRITE(16, f32, out1), MF_WRITE(17, f32, out2),       \
            MF_WRITE(18, f32, out3), MF_WRITE(19, f32, conv_out), MF_CONST(20, f32, bias)) { \
    MF_THREAD_EARLY;                                                                         \
    const MmaShare share = mma_share(t, p);                                                  \
    const u32 which = share.which;                                                           \
    MF_GLOBAL(f32) out = MF_MMA_OF(which, out);                                              \
    const MmaRowsOut sink = {out + t.group.y * p.out_strides[which],                         \
                             bias + p.bias_at[which],                                        \
                             (p.has_bias >> which & 1u) != 0u,                               \
                             p.matrices[which].rows,                                         \
                             which == p.conv_matrix ? p.conv_taps : 0u,                      \
                             conv_weight,                                                    \
                             conv_state,                                                     \
                             conv_out};                                                      \
    const MmaMemoryRow row = {x + t.group.y * p.x_stride, p.cols, p.wide};                   \
    mma_share_rows<BITS>(t, p, share, MF_MMA_OF(which, data), MF_MMA_OF(which, scales),      \
                         MF_MMA_OF(which, biases), &row, &sink);                             \
  }
MF_MMA_LINEAR_ONE(mma_linear_t1, 8u, kMmaThreadsMax, kMmaFits8 / 2)
MF_MMA_LINEAR_ONE(mma_linear_w4_t1, 4u, kMmaThreadsMax, kMmaFits4 / 2)
MF_MMA_LINEAR_ONE(mma_linear_ggml_t1, kMmaGgml, kMmaThreadsMax, kMmaFitsGgml / 2)
#define MF_MMA_KNOWN_LINEAR(X, type) \
  MF_MMA_LINEAR_ONE(mma_linear_##type##_t1, kGgml_##type, kMmaKnownThreads, 1)
MF_GGML_ONE_TYPES(MF_MMA_KNOWN_LINEAR, )
#undef MF_MMA_KNOWN_LINEAR
#undef MF_MMA_LINEAR_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
