// Attention of few queries where each tile has a group of threads, whose sums attention_merge adds.
// Few tiles have eight SIMD groups each, which is the shortest way. Many tiles have two or four, so
// that a multiprocessor has several tiles under way, and one waits while others compute.
#pragma once

#include "backend/gpu/kernels/attention/mma_attention_few_tile.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Group x: 16 rows; y: a kv head; z: a tile, which is kept for itself. Only rows that exist have
/// weights: no sum of a row is in another's.
template <typename Tile, u32 SIMDS>
MF_FN void attend_part(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                       MF_GLOBAL(const u64) k_pages, MF_GLOBAL(const u64) v_pages,
                       MF_GLOBAL(f32) partials) {
  const GroupRows group = group_rows(t, p, k_pages, v_pages, t.group.x, kTileFewRows);
  const FewRange range = few_range<false>(t, p, group);
  const u32 half = t.lane / 16u;
  if (p.lengths != 0u && range.tile >= range.end) {  // a part that longer sequences have
    await_inputs(t);
    for (u32 r = t.simd * 2u + half; r < kTileFewRows; r += SIMDS * 2u) {
      leave_no_part(t, p, partials, query_row(t, p, group, group.first + r), t.lane % 16u == 0u);
    }
    return;
  }
  typedef typename Tile::Number Number;
  KeyRows<Number> keys;
  const EightRows<Number> tile_rows = rows_at<Number>(t, p, group.sequence, range.tile);
  begin_few<Tile, false, SIMDS>(t, p, q, group, range, tile_rows, &keys);
  score_tile<Tile, false, SIMDS>(t, p, &keys, group.sequence, tile_rows, range.tile, range.begin,
                                 range.end);
  barrier(t);
  MF_ROLLED
  for (u32 first = t.simd * 2u; first < kTileFewRows; first += SIMDS * 2u) {
    if (group.first + first >= group.end) {
      const W4 none = {{0u, 0u, 0u, 0u}};
      store_weights<Tile, false>(t, p, first + half, none);
      continue;
    }
    const QueryRow row = query_row(t, p, group, group.first + first + half);
    const PartSum sum = weigh_tile<Tile, false>(t, p, row, first + half, range.tile);
    if (t.lane % 16u != 0u || row.end == 0u) continue;
    MF_GLOBAL(f32)
    to = partials + partial_sums(p, partial_index(p, row.token, row.head, t.group.z));
    to[0] = sum.largest;
    to[1] = sum.total;
  }
  barrier(t);
  MF_ROLLED
  for (u32 block = t.simd; block < Tile::value_blocks(p); block += SIMDS) {
    f32 sums[16];
    weigh_values<Tile, false>(t, p, block, sums);
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      const QueryRow row = query_row(t, p, group, group.first + t.lane / 4u + below * 8u);
      if (row.end == 0u) continue;
      const u64 index = partial_index(p, row.token, row.head, t.group.z);
      store_lane_columns(t, partials + partial_columns(p, index), block, Tile::v_head_dim(p),
                         lane_columns(sums, below));
    }
  }
}

#define MF_ATTENTION_PARTS(name, SIMDS, ...)                                      \
  MF_FITS(SIMDS * 32, 16 / SIMDS)                                                 \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_CONST(1, u64, k_pages), \
            MF_CONST(2, u64, v_pages), MF_WRITE(3, f32, partials)) {              \
    MF_THREAD_EARLY;                                                              \
    attend_part<__VA_ARGS__, SIMDS>(t, p, q, k_pages, v_pages, partials);         \
  }
MF_ATTENTION_PARTS(mma_attention_few_parts, 8, AnyTile<f32>)
MF_ATTENTION_PARTS(mma_attention_few_parts_d256, 8, FullTile<f32>)
MF_ATTENTION_PARTS(mma_attention_few_parts_f16, 8, AnyTile<u16>)
MF_ATTENTION_PARTS(mma_attention_few_parts_f16_d256, 8, FullTile<u16>)
MF_ATTENTION_PARTS(mma_attention_few_parts_q8, 8, AnyTile<u8>)
MF_ATTENTION_PARTS(mma_attention_few_parts_q8_d256, 8, FullTile<u8>)
MF_ATTENTION_PARTS(mma_attention_few_tiles_f16_d64, 2, SizedTile<u16, 64u>)
MF_ATTENTION_PARTS(mma_attention_few_tiles_f16_d128, 2, SizedTile<u16, 128u>)
MF_ATTENTION_PARTS(mma_attention_few_tiles_f16_d256, 4, FullTile<u16>)
MF_ATTENTION_PARTS(mma_attention_few_tiles_q8_d64, 2, SizedTile<u8, 64u>)
MF_ATTENTION_PARTS(mma_attention_few_tiles_q8_d128, 2, SizedTile<u8, 128u>)
MF_ATTENTION_PARTS(mma_attention_few_tiles_q8_d256, 4, FullTile<u8>)
#undef MF_ATTENTION_PARTS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
