// Heads of many tokens: out[t, h, j] = sum over k of x[t, h, k] * M[h, k, j], M in f32 as
// unpack_heads leaves it. A thread has the whole sums of eight tokens and eight columns, which it
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

/// The order of head_columns(): parts of eight rows.
struct HeadRowParts {
  u32 depth;

  MF_FN_MEMBER u32 first(u32 part) const { return part * kHeadPartRows; }
  MF_FN_MEMBER u32 step() const { return depth; }
  MF_FN_MEMBER u32 stride() const { return 1u; }
  MF_FN_MEMBER u32 end() const { return depth / kHeadPartRows; }
};

/// The order of linear_tile(): parts are lanes in the order of simd_sum(). Where an upper half of
/// the lanes has no columns it is left out: part numbers are `stride()` apart.
struct HeadLaneParts {
  u32 depth;
  u32 apart;

  MF_FN_MEMBER u32 first(u32 part) const { return lane_in_order(part) * 8u; }
  MF_FN_MEMBER u32 step() const { return 256u; }
  MF_FN_MEMBER u32 stride() const { return apart; }
  MF_FN_MEMBER u32 end() const { return 32u; }
};

/// The first of a thread's columns and tokens. Half a SIMD group has eight columns' places and two
/// tokens', so that its loads meet each bank once.
MF_FN u32 head_tile_col(MF_T t) {
  return (t.index / 2u % 8u + t.index / 32u % (kHeadTileCols / 64u) * 8u) * 4u;
}
MF_FN u32 head_tile_row(MF_T t) {
  return (t.index % 2u + t.index / 16u % 2u * 2u + t.index / (kHeadTileCols / 2u) * 4u) * 4u;
}

/// A tile of kHeadTileTokens tokens and kHeadTileCols columns of a head, of which a thread has
/// eight by eight. Shared: kHeadTileStages of eight k of the matrix, then of x; then levels of
/// HeadWaiting.
template <class PARTS>
struct HeadTile {
  MF_GLOBAL(const u8) matrix;  // what this thread copies of k = 0
  MF_GLOBAL(const u8) x;
  PARTS parts;
  u32 row_bytes;    // from a k of the matrix to the next
  u32 token_bytes;  // from a token of x to the next
  u32 last;         // token of the tile, from the first that this thread copies on
  u32 part;         // what is copied next
  u32 k;
  u32 stage;
  u32 own;  // the stage that is multiplied next

  /// Asks for the next eight k, if there are any.
  MF_FN_MEMBER void copy(MF_T t) {
    if (k < parts.depth) {
      const u32 at = stage * (kHeadTileStageWords * 4u);
      const u32 to = at + t.index * 16u;
      MF_UNROLL
      for (u32 i = 0u; i < kHeadTileMatrixCopies; ++i) {
        copy_async4(
            t, MF_SHARED_AT(t, u32, to + i * (kHeadTileThreads * 16u)),
            MF_CAST(const u32, matrix + static_cast<u64>(k + i * kHeadTileCopyRows) * row_bytes));
      }
      const u32 to_x =
          at + (u32{kHeadPartRows} * kHeadTileCols + t.index % kHeadPartRows * kHeadTileTokenRow +
                t.index / kHeadPartRows) *
                   4u;
      MF_GLOBAL(const u8) from = x + static_cast<u64>(k) * 4u;
      MF_UNROLL
      for (u32 i = 0u; i < kHeadTileCopies; ++i) {
        const u32 token = i * kHeadTileCopyTokens < last ? i * kHeadTileCopyTokens : last;
        copy_async1(t, MF_SHARED_AT(t, u32, to_x + i * (kHeadTileCopyTokens * 4u)),
                    MF_CAST(const u32, from + static_cast<u64>(token) * token_bytes));
      }
      k += parts.step();
      while (k >= parts.depth && part + parts.stride() < parts.end()) {
        part += parts.stride();
        k = parts.first(part);
      }
    }
    stage = (stage + 1u) % kHeadTileStages;
    copies_commit(t);
  }
  /// Sum of column c and token j, the second four of either half a tile further: [c * 8 + j].
  /// BEGINS: of a part, whose sums are zeros before.
  template <bool BEGINS>
  MF_FN_MEMBER void multiply(MF_T t, MF_LOCAL(f32) sums) {
    copies_wait<kHeadTileStages - 2u>(t);
    barrier(t);  // all threads' copies are there, and the stage before is read
    copy(t);
    const u32 at = own * (kHeadTileStageWords * 4u);
    MF_SHARED(f32) m = MF_SHARED_AT(t, f32, at + head_tile_col(t) * 4u);
    MF_SHARED(f32)
    rows = MF_SHARED_AT(t, f32, at + (u32{kHeadPartRows} * kHeadTileCols + head_tile_row(t)) * 4u);
    MF_UNROLL
    for (u32 i = 0u; i < kHeadPartRows; ++i) {
      const F4 tokens[2] = {load4(rows + i * kHeadTileTokenRow),
                            load4(rows + (i * kHeadTileTokenRow + kHeadTileTokens / 2u))};
      const F4 cols[2] = {load4(m + i * kHeadTileCols),
                          load4(m + (i * kHeadTileCols + kHeadTileCols / 2u))};
      MF_UNROLL
      for (u32 c = 0u; c < 8u; ++c) {
        MF_UNROLL
        for (u32 j = 0u; j < 8u; ++j) {
          const f32 before = BEGINS && i == 0u ? 0.0f : sums[c * 8u + j];
          sums[c * 8u + j] = mf_fma(cols[c / 4u].v[c % 4u], tokens[j / 4u].v[j % 4u], before);
        }
      }
    }
    own = (own + 1u) % kHeadTileStages;
  }
  /// The sums of a part, whose lane may have no columns.
  MF_FN_MEMBER void sum_part(MF_T t, u32 index, MF_LOCAL(f32) sums) {
    MF_UNROLL
    for (u32 i = 0u; i < kHeadTileSums; ++i) sums[i] = 0.0f;
    MF_ROLLED
    for (u32 at = parts.first(index); at < parts.depth; at += parts.step()) {
      multiply<false>(t, sums);
    }
  }
  MF_FN_MEMBER void start(MF_T t) {
    MF_UNROLL
    for (u32 i = 0u; i + 1u < kHeadTileStages; ++i) copy(t);
  }
};

/// to = to + sums.
MF_FN void add_sums(MF_LOCAL(f32) to, MF_LOCAL(const f32) sums) {
  MF_UNROLL
  for (u32 i = 0u; i < kHeadTileSums; ++i) to[i] = to[i] + sums[i];
}

/// Parts of rows, in order.
MF_FN void sum_rows(MF_T t, MF_LOCAL(HeadTile<HeadRowParts>) tile, MF_LOCAL(f32) totals) {
  MF_UNROLL
  for (u32 i = 0u; i < kHeadTileSums; ++i) totals[i] = 0.0f;
  MF_ROLLED
  for (u32 part = 0u; part < tile->parts.end(); ++part) {
    f32 sums[kHeadTileSums];
    tile->multiply<true>(t, sums);
    add_sums(totals, sums);
  }
}

/// A thread's sums of fours of lanes, of eights and so on that wait for their other half. Registers
/// have no place for them: lower levels, as many as launches say, are in shared memory, others in
/// thread memory, which takes 8 % longer on an H200.
struct HeadWaiting {
  u32 shared_levels;
  f32 own[kHeadTileLevels * kHeadTileSums];

  static MF_FN_MEMBER MF_SHARED(f32) place(MF_T t, u32 level) {
    const u32 word = u32{kHeadTileStages} * kHeadTileStageWords + level * kHeadTileLevelWords;
    return MF_SHARED_AT(t, f32, (word + t.index * 4u) * 4u);
  }
  MF_FN_MEMBER void put(MF_T t, u32 level, MF_LOCAL(const f32) sums) {
    if (level >= shared_levels) {
      MF_UNROLL
      for (u32 i = 0u; i < kHeadTileSums; ++i) own[level * kHeadTileSums + i] = sums[i];
      return;
    }
    MF_UNROLL
    for (u32 i = 0u; i < kHeadTileSums; i += 4u) {
      const F4 four = {{sums[i], sums[i + 1u], sums[i + 2u], sums[i + 3u]}};
      store4(place(t, level) + i * kHeadTileThreads, four);
    }
  }
  MF_FN_MEMBER void add_to(MF_T t, u32 level, MF_LOCAL(f32) sums) const {
    if (level >= shared_levels) {
      MF_UNROLL
      for (u32 i = 0u; i < kHeadTileSums; ++i) sums[i] = own[level * kHeadTileSums + i] + sums[i];
      return;
    }
    MF_UNROLL
    for (u32 i = 0u; i < kHeadTileSums; i += 4u) {
      const F4 four = load4(place(t, level) + i * kHeadTileThreads);
      MF_UNROLL
      for (u32 j = 0u; j < 4u; ++j) sums[i + j] = four.v[j] + sums[i + j];
    }
  }
};

/// Parts of lanes by fours, then pairs of fours and so on.
MF_FN void sum_lanes(MF_T t, MF_LOCAL(HeadTile<HeadLaneParts>) tile, u32 shared_levels,
                     MF_LOCAL(f32) totals) {
  HeadWaiting waiting;
  waiting.shared_levels = shared_levels;
  const u32 stride = tile->parts.stride();
  MF_ROLLED
  for (u32 part = 0u; part < 32u; part += 4u * stride) {
    f32 sums[kHeadTileSums];
    f32 last[kHeadTileSums];
    tile->sum_part(t, part, totals);
    tile->sum_part(t, part + stride, sums);
    add_sums(totals, sums);
    tile->sum_part(t, part + 2u * stride, sums);
    tile->sum_part(t, part + 3u * stride, last);
    add_sums(sums, last);
    add_sums(totals, sums);
    u32 level = 0u;
    MF_ROLLED
    for (u32 pair = part / (4u * stride); pair % 2u != 0u; pair /= 2u) {
      waiting.add_to(t, level, totals);
      ++level;
    }
    if (part + 4u * stride < 32u) waiting.put(t, level, totals);
  }
  // Lanes that were left out are zeros, which make of -0 what they make of it elsewhere.
  if (stride == 1u) return;
  MF_UNROLL
  for (u32 i = 0u; i < kHeadTileSums; ++i) totals[i] = totals[i] + 0.0f;
}

template <class PARTS>
MF_FN HeadTile<PARTS> make_head_tile(MF_T t, MF_PARAMS(HeadTileParams) p, PARTS parts,
                                     MF_GLOBAL(const f32) matrix, MF_GLOBAL(const f32) x) {
  const u32 token = t.group.y * kHeadTileTokens;
  // Tokens and columns past the end repeat the last ones and are not stored.
  const u32 left = p.tokens - 1u - token;
  const u32 first = t.index / kHeadPartRows < left ? t.index / kHeadPartRows : left;
  const u32 col = t.group.x * kHeadTileCols + t.index % (kHeadTileCols / 4u) * 4u;
  const u32 own_col = col < p.row_stride ? col : p.row_stride - 4u;
  MF_GLOBAL(const f32)
  own_matrix = matrix + (t.group.z * p.matrix_head +
                         static_cast<u64>(t.index / (kHeadTileCols / 4u)) * p.row_stride + own_col);
  MF_GLOBAL(const f32)
  own_x = x + ((token + first) * p.x.token_stride + t.group.z * p.x.head_stride +
               t.index % kHeadPartRows);
  const HeadTile<PARTS> tile = {MF_CAST(const u8, own_matrix),
                                MF_CAST(const u8, own_x),
                                parts,
                                p.row_stride * 4u,
                                static_cast<u32>(p.x.token_stride * 4u),
                                left - first,
                                0u,
                                0u,
                                0u,
                                0u};
  return tile;
}

MF_FN void store_head_tile(MF_T t, MF_PARAMS(HeadTileParams) p, MF_LOCAL(const f32) totals,
                           MF_GLOBAL(f32) out) {
  const u32 col = t.group.x * kHeadTileCols;
  const u32 token = t.group.y * kHeadTileTokens;
  MF_UNROLL
  for (u32 j = 0u; j < 8u; ++j) {
    const u32 row = token + j / 4u * (kHeadTileTokens / 2u) + head_tile_row(t) + j % 4u;
    if (row >= p.tokens) continue;
    MF_GLOBAL(f32) to = out + (row * p.out.token_stride + t.group.z * p.out.head_stride);
    MF_UNROLL
    for (u32 half = 0u; half < 2u; ++half) {
      const u32 begin = col + half * (kHeadTileCols / 2u) + head_tile_col(t);
      F4 four;
      MF_UNROLL
      for (u32 c = 0u; c < 4u; ++c) four.v[c] = totals[(half * 4u + c) * 8u + j];
      if (p.wide != 0u) {
        if (begin < p.cols) store4(to + begin, four);
        continue;
      }
      MF_UNROLL
      for (u32 c = 0u; c < 4u; ++c) {
        if (begin + c < p.cols) to[begin + c] = four.v[c];
      }
    }
  }
}

// Group x: a tile of columns; y: a tile of tokens; z: a head.
MF_FITS(kHeadTileThreads, kHeadTileGroups)
MF_KERNEL(head_tile_lanes, HeadTileParams, MF_READ(0, f32, matrix), MF_READ(1, f32, x),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  u32 apart = 1u;
  while (apart < 8u && p.depth * apart <= 128u) apart *= 2u;
  const HeadLaneParts parts = {p.depth, apart};
  HeadTile<HeadLaneParts> tile = make_head_tile(t, p, parts, matrix, x);
  tile.start(t);
  f32 totals[kHeadTileSums];
  sum_lanes(t, &tile, p.shared_levels, totals);
  store_head_tile(t, p, totals, out);
}

MF_FITS(kHeadTileThreads, kHeadTileGroups)
MF_KERNEL(head_tile_parts, HeadTileParams, MF_READ(0, f32, matrix), MF_READ(1, f32, x),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const HeadRowParts parts = {p.depth};
  HeadTile<HeadRowParts> tile = make_head_tile(t, p, parts, matrix, x);
  tile.start(t);
  f32 totals[kHeadTileSums];
  sum_rows(t, &tile, totals);
  store_head_tile(t, p, totals, out);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
