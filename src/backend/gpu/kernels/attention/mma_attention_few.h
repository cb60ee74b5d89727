// Attention of few queries where a group of eight SIMD groups walks all tiles of its rows.
#pragma once

#include "backend/gpu/kernels/attention/mma_attention_few_tile.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A SIMD group's part of the group's rows: two softmaxes, half a SIMD group each, and 32 columns
/// of all.
struct FewRows {
  u32 own;  // of the group's rows
  QueryRow row;
  PartSum sum;
  f32 columns[16];
};

/// Adds a tile whose keys and values have been asked for.
template <typename Tile>
MF_FN void add_tile_of_few(MF_T t, MF_PARAMS(AttentionParams) p,
                           MF_LOCAL(KeyRows<typename Tile::Number>) keys, TokenSequence sequence,
                           EightRows<typename Tile::Number> tile_rows, FewRange range,
                           MF_LOCAL(FewRows) rows) {
  const FewShared at = few_shared<Tile, true>(p);
  MF_SHARED(f32) keeps = MF_SHARED_AT(t, f32, at.keeps * 4u);
  MF_SHARED(f32) adds = MF_SHARED_AT(t, f32, at.adds * 4u);
  score_tile<Tile, true, 8u>(t, p, keys, sequence, tile_rows, range.tile, range.begin, range.end);
  barrier(t);
  const PartSum sum = weigh_tile<Tile, true>(t, p, rows->row, rows->own, range.tile);
  const PartMerge merge = merge_parts(rows->sum, sum);
  rows->sum = merge.all;
  if (t.lane % 16u == 0u) {
    keeps[rows->own] = merge.keep;
    adds[rows->own] = merge.add;
  }
  barrier(t);
  if (t.simd >= Tile::value_blocks(p)) return;
  f32 sums[16];
  weigh_values<Tile, true>(t, p, t.simd, sums);
  MF_UNROLL
  for (u32 i = 0u; i < 16u; ++i) {
    const u32 r = t.lane / 4u + i / 2u % 2u * 8u;
    rows->columns[i] = mf_fma(rows->columns[i], keeps[r], sums[i] * adds[r]);
  }
}

/// Group x: 16 rows; y: a kv head. All tiles, one after the other.
template <typename Tile>
MF_FN void attend_few(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                      MF_GLOBAL(const u64) k_pages, MF_GLOBAL(const u64) v_pages,
                      MF_GLOBAL(const f32) sinks, MF_GLOBAL(f32) out, MF_GLOBAL(const f32) gate) {
  const GroupRows group = group_rows(t, p, k_pages, v_pages, t.group.x, kTileFewRows);
  FewRows rows;
  rows.own = t.simd * 2u + t.lane / 16u;
  rows.row = query_row(t, p, group, group.first + rows.own);
  rows.sum = no_sum();
  MF_UNROLL
  for (u32 i = 0u; i < 16u; ++i) rows.columns[i] = 0.0f;
  FewRange range = few_range<true>(t, p, group);
  typedef typename Tile::Number Number;
  KeyRows<Number> keys;
  EightRows<Number> tile_rows = rows_at<Number>(t, p, group.sequence, range.tile);
  begin_few<Tile, true, 8u>(t, p, q, group, range, tile_rows, &keys);
  MF_ROLLED
  for (bool more = true; more;) {
    add_tile_of_few<Tile>(t, p, &keys, group.sequence, tile_rows, range, &rows);
    range.tile += kTileKeys;
    more = range.tile < range.end;
    if (!more) continue;
    barrier(t);
    tile_rows = rows_at<Number>(t, p, group.sequence, range.tile);
    read_tile<Tile, true, 8u>(t, p, &keys, group.sequence, tile_rows, range.tile, range.begin,
                              range.end);
    barrier(t);
  }
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, (few_shared<Tile, true>(p).query_factors) * 4u);
  if (t.lane % 16u == 0u && rows.row.end > 0u) {
    factors[rows.own] = finish_factor(p, rows.sum, sinks, rows.row.head);
  }
  barrier(t);
  if (t.simd >= Tile::value_blocks(p)) return;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const u32 r = t.lane / 4u + below * 8u;
    const QueryRow own = query_row(t, p, group, group.first + r);
    if (own.end == 0u) continue;
    LaneColumns c = lane_columns(rows.columns, below);
    finish_lane_columns(t, p, &c, factors[r], gates_of(p, gate, own.token, own.head), t.simd);
    store_lane_columns(t, out + (own.token * p.out.token_stride + own.head * p.out.head_stride),
                       t.simd, Tile::v_head_dim(p), c);
  }
}

#define MF_ATTENTION_FEW(name, TILE)                                                  \
  MF_FITS(256, 1)                                                                     \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_CONST(1, u64, k_pages),     \
            MF_CONST(2, u64, v_pages), MF_READ(3, f32, sinks), MF_WRITE(4, f32, out), \
            MF_READ(5, f32, gate)) {                                                  \
    MF_THREAD_EARLY;                                                                  \
    attend_few<TILE>(t, p, q, k_pages, v_pages, sinks, out, gate);                    \
  }
MF_ATTENTION_FEW(mma_attention_few, AnyTile<f32>)
MF_ATTENTION_FEW(mma_attention_few_d256, FullTile<f32>)
MF_ATTENTION_FEW(mma_attention_few_f16, AnyTile<u16>)
MF_ATTENTION_FEW(mma_attention_few_f16_d256, FullTile<u16>)
MF_ATTENTION_FEW(mma_attention_few_q8, AnyTile<u8>)
MF_ATTENTION_FEW(mma_attention_few_q8_d256, FullTile<u8>)
#undef MF_ATTENTION_FEW

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
