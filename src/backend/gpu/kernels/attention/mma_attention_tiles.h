// Causal attention over paged keys and values on matrix units: what a query's result is, in tiles
// of 64 keys at absolute positions. Every tile has its own largest score, weights and sums, from
// zero, and is a part of the softmax. So a query gets the same bits beside any others, whether one
// group walks its tiles (mma_attention_many.h) or each tile has a group (mma_attention_few.h).
//
// Numbers are multiplied as sums of two f16, products of the two smaller halves left out. A key's
// factor goes into its scores, a value's into its weights: a weight is 2^(score + value's exponent)
// with the largest of a tile at 1.
#pragma once

#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/matmul/block_exponent.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A weight times 2^14 meets a value times 2^14.
MF_FN f32 weight_factor() { return 16384.0f; }

/// A lane's part of 16 rows and 16 columns of the first factor: rows g and g + 8, columns 4 i to 4
/// i + 3.
struct TileRows {
  W4 high;
  W4 low;
};
/// They lie in shared memory as lanes hold them, 256 words.
enum : u32 { kTileRowsWords = 256 };
MF_FN TileRows load_rows(MF_SHARED(u32) own) {
  TileRows rows;
  rows.high = load4(own);
  rows.low = load4(own + 128u);
  return rows;
}
/// Four columns of row r in halves.
MF_FN void store_piece(MF_SHARED(u32) rows, u32 r, u32 i, W4 piece) {
  MF_SHARED(u32) to = rows + ((r % 8u * 4u + i) * 4u + r / 8u);
  to[0] = piece.v[0];
  to[2] = piece.v[1];
  to[128] = piece.v[2];
  to[130] = piece.v[3];
}

/// Sizes of tiles as parameters say, or those of usual heads, which the compiler knows then: a
/// single token waits for every instruction. Pages hold numbers of a type.
template <typename Stored>
struct AnyTile {
  typedef Stored Number;
  static MF_FN_MEMBER u32 key_steps(MF_PARAMS(AttentionParams) p) { return p.key_steps; }
  static MF_FN_MEMBER u32 value_blocks(MF_PARAMS(AttentionParams) p) { return p.value_blocks; }
  static MF_FN_MEMBER u32 value_words(MF_PARAMS(AttentionParams) p) { return p.value_words; }
  static MF_FN_MEMBER u32 head_dim(MF_PARAMS(AttentionParams) p) { return p.head_dim; }
  static MF_FN_MEMBER u32 v_head_dim(MF_PARAMS(AttentionParams) p) { return p.v_head_dim; }
};
template <typename Stored, u32 COLS>
struct SizedTile {
  typedef Stored Number;
  static MF_FN_MEMBER u32 key_steps(MF_PARAMS(AttentionParams)) { return COLS / 16u; }
  static MF_FN_MEMBER u32 value_blocks(MF_PARAMS(AttentionParams)) { return COLS / 32u; }
  static MF_FN_MEMBER u32 value_words(MF_PARAMS(AttentionParams)) {
    return COLS / 4u * static_cast<u32>(sizeof(Stored)) + 4u;
  }
  static MF_FN_MEMBER u32 head_dim(MF_PARAMS(AttentionParams)) { return COLS; }
  static MF_FN_MEMBER u32 v_head_dim(MF_PARAMS(AttentionParams)) { return COLS; }
};
template <typename Stored>
using FullTile = SizedTile<Stored, kTileSteps * 16u>;

/// A row's query, 128 columns after another, and its exponent. A SIMD group a row.
enum : u32 { kQueryPieces = kTileSteps / 8 };
MF_FN u32 load_query(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q, QueryRow row,
                     u32 head_dim, MF_LOCAL(F4) held) {
  MF_GLOBAL(const f32) from = q;
  if (row.end > 0u) from = q + (row.token * p.q.token_stride + row.head * p.q.head_stride);
  u32 bits = 0u;
  MF_UNROLL
  for (u32 u = 0u; u < kQueryPieces; ++u) {
    const u32 c = u * 128u + t.lane * 4u;
    held[u] = no_columns();
    if (row.end > 0u && c < head_dim) held[u] = load4(from + c);
    bits = largest_bits(held[u], bits);
  }
  return block_exponent(simd_max(t, bits));
}

/// A row's query in halves, 16 columns after another. Returns what its scores are multiplied by. A
/// SIMD group a row.
template <typename Tile>
MF_FN f32 stage_query(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q, QueryRow row,
                      u32 r, MF_SHARED(u32) queries) {
  F4 held[kQueryPieces];
  const u32 exponent = load_query(t, p, q, row, Tile::head_dim(p), held);
  MF_UNROLL
  for (u32 u = 0u; u < kQueryPieces; ++u) {
    const u32 s = u * 8u + t.lane / 4u;
    if (s >= Tile::key_steps(p)) continue;
    store_piece(queries + s * kTileRowsWords, r, t.lane & 3u,
                split_four(scaled(held[u], into_halves(exponent))));
  }
  return out_of_halves(exponent) * p.scale;
}

MF_FN void multiply_add(MF_T t, MF_LOCAL(f32) sums, W4 x, u32 y0, u32 y1) {
  matrix_multiply_add_f16(t, sums, x.v[0], x.v[1], x.v[2], x.v[3], y0, y1);
}

/// The sums over columns of 16 rows and COUNT times 8 keys; products with low halves are summed
/// apart. Sums take turns, as one's next product waits for the one before.
template <u32 COUNT>
struct TileDots {
  f32 high[COUNT * 4u];
  f32 low[COUNT * 4u];

  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 i = 0u; i < COUNT * 4u; ++i) {
      high[i] = 0.0f;
      low[i] = 0.0f;
    }
  }
  /// k: of key g of each eight; of two eights where keys have one half.
  MF_FN_MEMBER void add_larger(MF_T t, TileRows x, MF_LOCAL(const W4) k) {
    MF_UNROLL
    for (u32 n = 0u; n < COUNT; ++n) {
      multiply_add(t, low + n * 4u, x.low, k[n / 2u].v[n % 2u * 2u], k[n / 2u].v[n % 2u * 2u + 1u]);
    }
    MF_UNROLL
    for (u32 n = 0u; n < COUNT; ++n) {
      multiply_add(t, high + n * 4u, x.high, k[n / 2u].v[n % 2u * 2u],
                   k[n / 2u].v[n % 2u * 2u + 1u]);
    }
  }
  MF_FN_MEMBER void add(MF_T t, TileRows x, MF_LOCAL(const W4) k) {
    MF_UNROLL
    for (u32 n = 0u; n < COUNT; ++n) multiply_add(t, low + n * 4u, x.low, k[n].v[0], k[n].v[1]);
    MF_UNROLL
    for (u32 n = 0u; n < COUNT; ++n) multiply_add(t, high + n * 4u, x.high, k[n].v[0], k[n].v[1]);
    MF_UNROLL
    for (u32 n = 0u; n < COUNT; ++n) multiply_add(t, low + n * 4u, x.high, k[n].v[2], k[n].v[3]);
  }
  MF_FN_MEMBER f32 dot(u32 n, u32 i) const { return high[n * 4u + i] + low[n * 4u + i]; }
};

/// The sums of four tiles of 8 columns += weights times values, in halves.
MF_FN void add_weighted(MF_T t, MF_LOCAL(f32) sums, TileRows x, MF_LOCAL(const W4) v) {
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) multiply_add(t, sums + j * 4u, x.low, v[j].v[0], v[j].v[1]);
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) multiply_add(t, sums + j * 4u, x.high, v[j].v[2], v[j].v[3]);
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) multiply_add(t, sums + j * 4u, x.high, v[j].v[0], v[j].v[1]);
}

/// The same where values have one half, those of two tiles in four words.
MF_FN void add_weighted_larger(MF_T t, MF_LOCAL(f32) sums, TileRows x, MF_LOCAL(const W4) v) {
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) {
    multiply_add(t, sums + j * 4u, x.low, v[j / 2u].v[j % 2u * 2u], v[j / 2u].v[j % 2u * 2u + 1u]);
  }
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) {
    multiply_add(t, sums + j * 4u, x.high, v[j / 2u].v[j % 2u * 2u], v[j / 2u].v[j % 2u * 2u + 1u]);
  }
}

/// Four weights of a row from scores with their values' exponents, less the largest one; `part`
/// becomes their sum without these. NORMAL: none is below -126.
template <bool NORMAL>
MF_FN F4 tile_weights(F4 scores, F4 inverses, MF_LOCAL(f32) part) {
  F4 weights;
  f32 w[4];
  MF_UNROLL
  for (u32 e = 0u; e < 4u; ++e) {
    const f32 weight = NORMAL ? mf_exp2_normal(scores.v[e]) : mf_exp2(scores.v[e]);
    w[e] = weight * inverses.v[e];
    weights.v[e] = weight * weight_factor();
  }
  *part = (w[0] + w[1]) + (w[2] + w[3]);
  return weights;
}

/// A lane's sums of 32 columns of one row, from the sums of four tiles of 16 rows and 8 columns:
/// columns 8 i to 8 i + 7 of them, of row g or, `below`, g + 8.
struct LaneColumns {
  F4 left;
  F4 right;
};
MF_FN LaneColumns lane_columns(MF_LOCAL(const f32) sums, u32 below) {
  LaneColumns c;
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) {
    c.left.v[j] = sums[j * 4u + below * 2u];
    c.right.v[j] = sums[j * 4u + below * 2u + 1u];
  }
  return c;
}
MF_FN void store_lane_columns(MF_T t, MF_GLOBAL(f32) row, u32 block, u32 cols, LaneColumns c) {
  const u32 first = block * 32u + (t.lane & 3u) * 8u;
  if (first < cols) store4(row + first, c.left);
  if (first + 4u < cols) store4(row + (first + 4u), c.right);
}
/// A row's columns, finished.
MF_FN void finish_lane_columns(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(LaneColumns) c,
                               f32 factor, MF_GLOBAL(const f32) gates, u32 block) {
  const u32 first = block * 32u + (t.lane & 3u) * 8u;
  F4 left = no_columns();
  F4 right = no_columns();
  const bool has_gate = p.has_gate != 0u;
  if (has_gate && first < p.v_head_dim) left = load4(gates + first);
  if (has_gate && first + 4u < p.v_head_dim) right = load4(gates + (first + 4u));
  MF_UNROLL
  for (u32 j = 0u; j < 4u; ++j) {
    c->left.v[j] = mf_fma(c->left.v[j], factor, 0.0f);
    c->right.v[j] = mf_fma(c->right.v[j], factor, 0.0f);
    if (!has_gate) continue;
    c->left.v[j] = c->left.v[j] * sigmoid(left.v[j]);
    c->right.v[j] = c->right.v[j] * sigmoid(right.v[j]);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
