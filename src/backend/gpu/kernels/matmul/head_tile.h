// Heads of many tokens: out[t, h, j] = sum over k of x[t, h, k] * M[h, k, j], M in f32 as
// unpack_heads leaves it. A thread has the whole sums of four tokens and eight columns, which it
// adds in the order of linear_tile() or of head_columns(), so that bits are those of few tokens.
#pragma once

#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/matmul/weights.h"

namespace moeflux {
namespace gpu {
namespace kernels {

// Group x: kUnpackThreads octets of a head's rows; z: a head.
MF_KERNEL(unpack_heads, UnpackParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),
          MF_CONST(2, u8, biases), MF_WRITE(3, f32, out)) {
  MF_THREAD;
  const u32 octets = p.weight.cols / 8u;
  const u32 i = t.group.x * t.threads + t.index;
  if (i >= octets * p.rows_per_head) return;
  // Neighbours write to neighbouring places.
  const u32 row = p.row_stride == 1u ? i % p.rows_per_head : i / octets;
  const u32 col = (p.row_stride == 1u ? i / p.rows_per_head : i % octets) * 8u;
  f32 values[8];
  decode_eight(values, p.weight, data, scales, biases,
               static_cast<u64>(t.group.z) * p.head_stride + p.row_begin + row, col, 8u);
  MF_GLOBAL(f32)
  to = out + (t.group.z * p.out_head + static_cast<u64>(row) * p.row_stride +
              static_cast<u64>(col) * p.col_stride);
  if (p.col_stride == 1u) {
    const F4 low = {{values[0], values[1], values[2], values[3]}};
    const F4 high = {{values[4], values[5], values[6], values[7]}};
    store4(to, low);
    store4(to + 4u, high);
  } else {
    MF_UNROLL
    for (u32 k = 0u; k < 8u; ++k) to[static_cast<u64>(k) * p.col_stride] = values[k];
  }
}

/// A lane's columns are 256 apart, and lanes are added by halves: 0 and 16, 8 and 24, ...
MF_FN u32 lane_in_order(u32 part) {
  return (part & 1u) << 4u | (part & 2u) << 2u | (part & 4u) | (part & 8u) >> 2u |
         (part & 16u) >> 4u;
}

/// Sums of parts of rows, in order: head_columns(). Part `part` has eight k from first() on, and
/// those that are step() further.
struct HeadPartSums {
  f32 totals[32];

  static MF_FN_MEMBER u32 parts(u32 depth) { return depth / kHeadPartRows; }
  static MF_FN_MEMBER u32 first(u32 part) { return part * kHeadPartRows; }
  static MF_FN_MEMBER u32 step(u32 depth) { return depth; }
  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 i = 0u; i < 32u; ++i) totals[i] = 0.0f;
  }
  MF_FN_MEMBER void add(u32, MF_LOCAL(const f32) sums) {
    MF_UNROLL
    for (u32 i = 0u; i < 32u; ++i) totals[i] = totals[i] + sums[i];
  }
};

/// Sums of lanes, added as simd_sum() does: linear_tile().
struct HeadLaneSums {
  f32 totals[32];
  f32 pairs[32];
  f32 fours[32];
  f32 eights[32];
  f32 halves[32];

  static MF_FN_MEMBER u32 parts(u32) { return 32u; }
  static MF_FN_MEMBER u32 first(u32 part) { return lane_in_order(part) * 8u; }
  static MF_FN_MEMBER u32 step(u32) { return 256u; }
  MF_FN_MEMBER void clear() {}
  static MF_FN_MEMBER void join(MF_LOCAL(f32) to, MF_LOCAL(const f32) sums, bool is_first) {
    MF_UNROLL
    for (u32 i = 0u; i < 32u; ++i) to[i] = is_first ? sums[i] : to[i] + sums[i];
  }
  MF_FN_MEMBER void add(u32 part, MF_LOCAL(const f32) sums) {
    join(pairs, sums, part % 2u == 0u);
    if (part % 2u != 1u) return;
    join(fours, pairs, part % 4u == 1u);
    if (part % 4u != 3u) return;
    join(eights, fours, part % 8u == 3u);
    if (part % 8u != 7u) return;
    join(halves, eights, part % 16u == 7u);
    if (part % 16u != 15u) return;
    join(totals, halves, part == 15u);
  }
};

/// A tile of kHeadTileTokens tokens and kHeadTileCols columns of a head. Shared: kHeadTileStages of
/// eight k of the matrix, then of x.
template <class SUMS>
struct HeadTile {
  MF_GLOBAL(const f32) matrix;  // the first of the columns
  MF_GLOBAL(const f32) x;
  u32 row_stride;
  u32 depth;
  u64 x_rows[4];  // of the tokens that this thread copies
  u32 part;       // what is copied next
  u32 k;
  u32 stage;

  /// Asks for the next eight k, if there are any.
  MF_FN_MEMBER void copy(MF_T t) {
    if (k < depth) {
      const u32 at = stage * kHeadTileStageWords;
      const u32 row = t.index / (kHeadTileCols / 4u);
      const u32 col = t.index % (kHeadTileCols / 4u) * 4u;
      copy_async4(t, MF_SHARED_AT(t, u32, (at + row * kHeadTileCols + col) * 4u),
                  MF_CAST(const u32, matrix + (static_cast<u64>(k + row) * row_stride + col)));
      const u32 own = t.index % kHeadPartRows;
      const u32 token = t.index / kHeadPartRows;
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 to = at + u32{kHeadPartRows} * kHeadTileCols + own * kHeadTileTokenRow + token +
                       i * (u32{kHeadTileThreads} / kHeadPartRows);
        copy_async1(t, MF_SHARED_AT(t, u32, to * 4u),
                    MF_CAST(const u32, x + (x_rows[i] + k + own)));
      }
      k += SUMS::step(depth);
      while (k >= depth && part + 1u < SUMS::parts(depth)) k = SUMS::first(++part);
    }
    stage = (stage + 1u) % kHeadTileStages;
    copies_commit(t);
  }
  /// Sum of column c, the second four of which are half a tile further, and token j: [c * 4 + j].
  static MF_FN_MEMBER void multiply(MF_T t, u32 stage, MF_LOCAL(f32) sums) {
    MF_SHARED(f32) m = MF_SHARED_AT(t, f32, stage * kHeadTileStageWords * 4u) + t.index % 8u * 4u;
    MF_SHARED(f32)
    own = MF_SHARED_AT(t, f32,
                       (stage * kHeadTileStageWords + u32{kHeadPartRows} * kHeadTileCols) * 4u) +
          t.index / 8u * 4u;
    MF_UNROLL
    for (u32 i = 0u; i < kHeadPartRows; ++i) {
      const F4 tokens = load4(own + i * kHeadTileTokenRow);
      const F4 cols[2] = {load4(m + i * kHeadTileCols),
                          load4(m + (i * kHeadTileCols + kHeadTileCols / 2u))};
      MF_UNROLL
      for (u32 c = 0u; c < 8u; ++c) {
        MF_UNROLL
        for (u32 j = 0u; j < 4u; ++j) {
          sums[c * 4u + j] = mf_fma(cols[c / 4u].v[c % 4u], tokens.v[j], sums[c * 4u + j]);
        }
      }
    }
  }
  MF_FN_MEMBER void run(MF_T t, MF_LOCAL(SUMS) all) {
    MF_UNROLL
    for (u32 i = 0u; i + 1u < kHeadTileStages; ++i) copy(t);
    u32 own = 0u;
    MF_ROLLED
    for (u32 i = 0u; i < SUMS::parts(depth); ++i) {
      f32 sums[32];
      MF_UNROLL
      for (u32 s = 0u; s < 32u; ++s) sums[s] = 0.0f;
      MF_ROLLED
      for (u32 begin = SUMS::first(i); begin < depth; begin += SUMS::step(depth)) {
        copies_wait<kHeadTileStages - 2u>(t);
        barrier(t);  // all threads' copies are there, and the stage before is read
        copy(t);
        multiply(t, own, sums);
        own = (own + 1u) % kHeadTileStages;
      }
      all->add(i, sums);
    }
  }
};

template <class SUMS>
MF_FN void head_tile(MF_T t, MF_PARAMS(HeadTileParams) p, MF_GLOBAL(const f32) matrix,
                     MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  const u32 col = t.group.x * kHeadTileCols;
  const u32 token = t.group.y * kHeadTileTokens;
  HeadTile<SUMS> tile = {matrix + (t.group.z * p.matrix_head + col),
                         x + t.group.z * p.x.head_stride,
                         p.row_stride,
                         p.depth,
                         {},
                         0u,
                         0u,
                         0u};
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 own = token + t.index / kHeadPartRows + i * (u32{kHeadTileThreads} / kHeadPartRows);
    tile.x_rows[i] = (own < p.tokens ? own : p.tokens - 1u) * p.x.token_stride;
  }
  SUMS sums;
  sums.clear();
  tile.run(t, &sums);
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) {
    const u32 row = token + t.index / 8u * 4u + j;
    MF_GLOBAL(f32) to = out + (row * p.out.token_stride + t.group.z * p.out.head_stride);
    MF_UNROLL
    for (u32 half = 0u; half < 2u; ++half) {
      const u32 first = col + half * (kHeadTileCols / 2u) + t.index % 8u * 4u;
      MF_UNROLL
      for (u32 c = 0u; c < 4u; ++c) {
        if (row < p.tokens && first + c < p.cols) {
          to[first + c] = sums.totals[(half * 4u + c) * 4u + j];
        }
      }
    }
  }
}

// Group x: a tile of columns; y: a tile of tokens; z: a head.
#define MF_HEAD_TILE(name, SUMS)                                               \
  MF_FITS(kHeadTileThreads, 2)                                                 \
  MF_KERNEL(name, HeadTileParams, MF_READ(0, f32, matrix), MF_READ(1, f32, x), \
            MF_WRITE(2, f32, out)) {                                           \
    MF_THREAD;                                                                 \
    head_tile<SUMS>(t, p, matrix, x, out);                                     \
  }
MF_HEAD_TILE(head_tile_lanes, HeadLaneSums)
MF_HEAD_TILE(head_tile_parts, HeadPartSums)
#undef MF_HEAD_TILE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
