// Attention of many queries: a SIMD group has 16 rows of one kv head, all keys of a tile and all
// columns of the result, so that no other SIMD group takes part in a row's softmax. A group's keys
// and values come in halves (mma_attention_halves.h), half a tile at a time, through three places
// in shared memory, which take turns. Registers are scarcest.
#pragma once

#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_tiles.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where things lie in shared memory, in words.
struct ManyShared {
  u32 query_words;  // of a SIMD group
  u32 slots;
  u32 slot_words;
  u32 factors;
};
template <u32 SIMDS, u32 HALVES>
MF_FN ManyShared many_shared(MF_PARAMS(AttentionParams) p) {
  const u32 key_words = p.key_steps * 8u * HALVES;
  const u32 value_words = p.value_blocks * 16u * HALVES;
  ManyShared at;
  at.query_words = 16u * p.key_steps * 16u;
  at.slots = SIMDS * at.query_words;
  at.slot_words = kTileKeys / 2u * (key_words > value_words ? key_words : value_words);
  at.factors = at.slots + 3u * at.slot_words;
  return at;
}

MF_FN void copy_words(MF_T t, u32 to, MF_GLOBAL(const u32) from, u32 words) {
  MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, to * 4u);
  for (u32 i = t.index * 4u; i < words; i += t.threads * 4u) copy_async4(t, staged + i, from + i);
}

/// A row under way in the lanes that have it.
struct ManyRow {
  f32 factor;  // of its scores
  PartSum all;
};

/// Scores of 32 keys with their values' exponents, of the rows g and g + 8: scores[4 n + i] is of
/// key 8 n + 2 quad + i % 2.
template <u32 HALVES>
MF_FN void score_half(MF_T t, MF_PARAMS(AttentionParams) p, u32 queries, u32 slot, u32 factors,
                      MF_LOCAL(const ManyRow) rows, MF_LOCAL(f32) scores) {
  MF_SHARED(u32) x = MF_SHARED_AT(t, u32, (queries + t.lane * 4u) * 4u);
  MF_SHARED(u32) k = MF_SHARED_AT(t, u32, (slot + t.lane * 4u) * 4u);
  const u32 stride = p.key_steps * 128u;
  TileDots<4u> dots;
  dots.clear();
  MF_ROLLED
  for (u32 s = 0u; s < p.key_steps; ++s) {
    W4 keys[2u * HALVES];
    MF_UNROLL
    for (u32 n = 0u; n < 2u * HALVES; ++n) keys[n] = load4(k + n * stride);
    if (HALVES == 1u) {
      dots.add_larger(t, load_rows(x), keys);
    } else {
      dots.add(t, load_rows(x), keys);
    }
    x = x + kTileRowsWords;
    k = k + 128u;
  }
  MF_SHARED(f32) key_factors = MF_SHARED_AT(t, f32, factors * 4u);
  MF_UNROLL
  for (u32 n = 0u; n < 4u; ++n) {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 key = n * 8u + (t.lane & 3u) * 2u + i % 2u;
      scores[n * 4u + i] =
          dots.dot(n, i) * rows[i / 2u].factor * key_factors[key] + key_factors[kTileKeys + key];
    }
  }
}

/// Hides the keys of a tile that rows do not see.
MF_FN void mask_scores(MF_T t, MF_PARAMS(AttentionParams) p, u32 first_row, u32 tile,
                       MF_LOCAL(f32) scores) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const QueryRow row = query_row(t, p, first_row + t.lane / 4u + below * 8u);
    MF_UNROLL
    for (u32 n = 0u; n < kTileKeys / 8u; ++n) {
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        const u32 key = tile + n * 8u + (t.lane & 3u) * 2u + i;
        if (key < row.begin || key >= row.end) scores[n * 4u + below * 2u + i] = -mf_infinity();
      }
    }
  }
}

/// Scores of a tile, less the largest one of a row, become weights in halves; `sums` get the totals
/// of a lane.
template <bool NORMAL>
MF_FN void weigh_differences(MF_T t, MF_SHARED(u32) inverses, MF_LOCAL(const f32) scores,
                             MF_LOCAL(TileRows) weights, MF_LOCAL(PartSum) sums) {
  f32 parts[2][4];
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    F4 back;
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      const W2 pair = load2(inverses + (k * 16u + value_key(t.lane & 3u, 2u * i)));
      back.v[2u * i] = as_float(pair.v[0]);
      back.v[2u * i + 1u] = as_float(pair.v[1]);
    }
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      F4 own;
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        own.v[i] = scores[(2u * k + i / 2u) * 4u + below * 2u + i % 2u];
      }
      const W4 piece = split_four(tile_weights<NORMAL>(own, back, parts[below] + k));
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        weights[k].high.v[below + 2u * i] = piece.v[i];
        weights[k].low.v[below + 2u * i] = piece.v[2u + i];
      }
    }
  }
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    sums[below].total = (parts[below][0] + parts[below][1]) + (parts[below][2] + parts[below][3]);
  }
}

/// Scores of a tile become weights in halves; `sums` are those of the rows g and g + 8.
MF_FN void weigh_rows(MF_T t, MF_SHARED(u32) inverses, MF_LOCAL(f32) scores,
                      MF_LOCAL(TileRows) weights, MF_LOCAL(PartSum) sums) {
  bool is_normal[4] = {true, true, true, true};  // so that none waits for all before
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    f32 largest = -mf_infinity();
    MF_UNROLL
    for (u32 n = 0u; n < kTileKeys / 8u; ++n) {
      largest =
          mf_max(largest, mf_max(scores[n * 4u + below * 2u], scores[n * 4u + below * 2u + 1u]));
    }
    largest = mf_max(largest, simd_shuffle_xor(t, largest, 1u));
    sums[below].largest = mf_max(largest, simd_shuffle_xor(t, largest, 2u));
    const f32 measure = measure_of(sums[below].largest);
    MF_UNROLL
    for (u32 i = 0u; i < kTileKeys / 4u; ++i) {
      const u32 at = i / 2u * 4u + below * 2u + i % 2u;
      scores[at] = scores[at] - measure;
      is_normal[i % 4u] = is_normal[i % 4u] && scores[at] >= -126.0f;
    }
  }
  // Nearly always: then no weight needs the steps that keep those below the normal numbers.
  const bool all_normal = (is_normal[0] && is_normal[1]) && (is_normal[2] && is_normal[3]);
  if (simd_ballot(t, !all_normal) == 0u) {
    weigh_differences<true>(t, inverses, scores, weights, sums);
  } else {
    weigh_differences<false>(t, inverses, scores, weights, sums);
  }
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    sums[below].total = sums[below].total + simd_shuffle_xor(t, sums[below].total, 1u);
    sums[below].total = sums[below].total + simd_shuffle_xor(t, sums[below].total, 2u);
  }
}

/// The sums of one block of 32 columns over a tile.
template <u32 HALVES>
MF_FN void weigh_block(MF_T t, MF_PARAMS(AttentionParams) p, u32 first_slot, u32 second_slot,
                       u32 block, MF_LOCAL(const TileRows) weights, MF_LOCAL(f32) sums) {
  MF_UNROLL
  for (u32 i = 0u; i < 16u; ++i) sums[i] = 0.0f;
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    const u32 piece = (k % 2u * p.value_blocks + block) * 2u * HALVES;
    MF_SHARED(u32)
    v = MF_SHARED_AT(t, u32,
                     ((k < 2u ? first_slot : second_slot) + piece * 128u + t.lane * 4u) * 4u);
    W4 values[2u * HALVES];
    MF_UNROLL
    for (u32 j = 0u; j < 2u * HALVES; ++j) values[j] = load4(v + j * 128u);
    if (HALVES == 1u) {
      add_weighted_larger(t, sums, weights[k], values);
    } else {
      add_weighted(t, sums, weights[k], values);
    }
  }
}

MF_FN u64 row_out(MF_PARAMS(AttentionParams) p, QueryRow row) {
  return row.token * p.out.token_stride + row.head * p.out.head_stride;
}

/// The factor of a row's finished columns; or leaves its sum, and columns stay as they are.
MF_FN f32 end_row(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) sinks,
                  MF_GLOBAL(f32) partials, QueryRow row, PartSum sum) {
  if (p.finishes != 0u) return finish_factor(p, sum, sinks, row.head);
  if ((t.lane & 3u) == 0u) leave_sum(p, partials, row, sum);
  return 1.0f;
}

/// Takes up rows where the launch for the tiles before these left them.
template <u32 BLOCKS>
MF_FN void resume_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(f32) out,
                       MF_GLOBAL(f32) partials, u32 first_row, MF_LOCAL(ManyRow) rows,
                       MF_LOCAL(f32) columns) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const QueryRow row = query_row(t, p, first_row + t.lane / 4u + below * 8u);
    if (row.end == 0u) continue;
    MF_GLOBAL(f32) from = out + row_out(p, row);
    rows[below].all = resume_sum(p, partials, row);
    MF_UNROLL
    for (u32 b = 0u; b < BLOCKS; ++b) {
      const u32 c = b * 32u + (t.lane & 3u) * 8u;
      F4 left = no_columns();
      F4 right = no_columns();
      if (c < p.v_head_dim) left = load4(MF_CAST(const f32, from + c));
      if (c + 4u < p.v_head_dim) right = load4(MF_CAST(const f32, from + (c + 4u)));
      MF_UNROLL
      for (u32 j = 0u; j < 4u; ++j) {
        columns[b * 16u + j * 4u + below * 2u] = left.v[j];
        columns[b * 16u + j * 4u + below * 2u + 1u] = right.v[j];
      }
    }
  }
}

/// Writes rows: finished, or as they are, for the launch that goes on with them.
template <u32 BLOCKS>
MF_FN void leave_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) sinks,
                      MF_GLOBAL(const f32) gate, MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials,
                      u32 first_row, MF_LOCAL(const ManyRow) rows, MF_LOCAL(const f32) columns) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const QueryRow row = query_row(t, p, first_row + t.lane / 4u + below * 8u);
    if (row.end == 0u) continue;
    const f32 factor = end_row(t, p, sinks, partials, row, rows[below].all);
    MF_GLOBAL(const f32) gates = gates_of(p, gate, row.token, row.head);
    MF_UNROLL
    for (u32 b = 0u; b < BLOCKS; ++b) {
      LaneColumns c = lane_columns(columns + b * 16u, below);
      if (p.finishes != 0u) finish_lane_columns(t, p, &c, factor, gates, b);
      store_lane_columns(t, out + row_out(p, row), b, p.v_head_dim, c);
    }
  }
}

/// A tile of a SIMD group's rows in a place of its own.
template <u32 HALVES>
MF_FN void keep_tile(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(f32) partials, u32 first_row,
                     u32 part, MF_LOCAL(const PartSum) sums, bool has_columns, u32 first_slot,
                     u32 second_slot, MF_LOCAL(const TileRows) weights) {
  u64 index[2];
  bool exists[2];
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const QueryRow row = query_row(t, p, first_row + t.lane / 4u + below * 8u);
    index[below] = partial_index(p, row.token, row.head, part);
    exists[below] = row.end != 0u;
    if (!exists[below] || (t.lane & 3u) != 0u) continue;
    MF_GLOBAL(f32) to = partials + partial_sums(p, index[below]);
    to[0] = sums[below].largest;
    to[1] = sums[below].total;
  }
  if (!has_columns) return;
  MF_ROLLED
  for (u32 b = 0u; b < p.value_blocks; ++b) {
    f32 block[16];
    weigh_block<HALVES>(t, p, first_slot, second_slot, b, weights, block);
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      if (!exists[below]) continue;
      store_lane_columns(t, partials + partial_columns(p, index[below]), b, p.v_head_dim,
                         lane_columns(block, below));
    }
  }
}

/// Adds a tile to all columns of a SIMD group's rows.
template <u32 HALVES, u32 BLOCKS>
MF_FN void add_tile(MF_T t, MF_PARAMS(AttentionParams) p, u32 first_slot, u32 second_slot,
                    MF_LOCAL(const TileRows) weights, MF_LOCAL(const PartSum) sums,
                    MF_LOCAL(ManyRow) rows, MF_LOCAL(f32) columns) {
  PartMerge merges[2];
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    merges[below] = merge_parts(rows[below].all, sums[below]);
    rows[below].all = merges[below].all;
  }
  MF_UNROLL
  for (u32 b = 0u; b < BLOCKS; ++b) {
    if (b >= p.value_blocks) continue;
    f32 block[16];
    weigh_block<HALVES>(t, p, first_slot, second_slot, b, weights, block);
    MF_UNROLL
    for (u32 i = 0u; i < 16u; ++i) {
      const PartMerge merge = merges[i / 2u % 2u];
      columns[b * 16u + i] = mf_fma(columns[b * 16u + i], merge.keep, block[i] * merge.add);
    }
  }
}

/// The tiles of a group, and which positions any and all of a SIMD group's rows see.
struct ManyRange {
  u32 first_row;
  u32 own_row;
  u32 tile;
  u32 stop;
  u32 low;
  u32 high;
  u32 all_low;
  u32 all_high;
};
template <u32 SIMDS, bool WALKS>
MF_FN ManyRange many_range(MF_T t, MF_PARAMS(AttentionParams) p) {
  const u32 per_group = SIMDS * 16u;
  const u32 count = p.tokens * p.heads_per_kv_head;
  ManyRange r;
  r.first_row = ((count + per_group - 1u) / per_group - 1u - t.group.x) * per_group;
  r.own_row = r.first_row + t.simd * 16u;
  const bool has_rows = r.own_row < count;
  const QueryRow first = query_row(t, p, r.own_row);
  const QueryRow last = query_row(t, p, r.own_row + 16u <= count ? r.own_row + 15u : count - 1u);
  r.low = first.begin;
  r.high = has_rows ? last.end : 0u;
  r.all_low = last.begin;
  r.all_high = first.end;
  r.tile = p.first_part + (WALKS ? 0u : t.group.z * p.group_parts);
  r.stop = p.first_part + p.num_parts;
  if (WALKS) {
    const u32 end = r.first_row + per_group <= count ? r.first_row + per_group : count;
    const u32 seen = query_row(t, p, r.first_row).begin / kTileKeys;
    const u32 unseen = (query_row(t, p, end - 1u).end - 1u) / kTileKeys + 1u;
    r.tile = r.tile < seen ? seen : r.tile;
    r.stop = r.stop > unseen ? unseen : r.stop;
  } else if (r.stop > r.tile + p.group_parts) {
    r.stop = r.tile + p.group_parts;
  }
  return r;
}

/// A SIMD group's queries in halves.
MF_FN void stage_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q, u32 first_row,
                      u32 queries, MF_LOCAL(ManyRow) rows) {
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    rows[below].factor = 0.0f;
    rows[below].all = no_sum();
  }
  MF_ROLLED
  for (u32 r = 0u; r < 16u; ++r) {
    const f32 factor = stage_query<AnyTile<f32>>(t, p, q, query_row(t, p, first_row + r), r,
                                                 MF_SHARED_AT(t, u32, queries * 4u));
    if (t.lane / 4u == r % 8u && r < 8u) rows[0].factor = factor;
    if (t.lane / 4u == r % 8u && r >= 8u) rows[1].factor = factor;
  }
  simd_barrier(t);
}

/// Half of a tile's keys and its factors, unless it is not the group's.
template <u32 HALVES>
MF_FN void copy_first_half(MF_T t, MF_PARAMS(AttentionParams) p, ManyShared at, ManyRange range,
                           u32 tile, MF_GLOBAL(const u32) from, u32 slot) {
  if (tile < range.stop) {
    copy_words(t, slot, from, kTileKeys / 2u * p.key_steps * 8u * HALVES);
    copy_words(t, at.factors + (tile & 1u) * 3u * kTileKeys,
               from + halves_layout<HALVES>(p).factors, 3u * kTileKeys);
  }
  copies_commit(t);
}

/// Group x: 16 rows for each SIMD group, the last ones first, as they take longest; y: a kv head;
/// z: tiles whose sums are kept apart, unless a group WALKS all. Keys and values are in HALVES;
/// these have up to BLOCKS of 32 columns.
template <u32 SIMDS, bool WALKS, u32 HALVES, u32 BLOCKS>
MF_FN void attend_many(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                       MF_GLOBAL(const u32) halves, MF_GLOBAL(const f32) sinks, MF_GLOBAL(f32) out,
                       MF_GLOBAL(f32) partials, MF_GLOBAL(const f32) gate) {
  const ManyShared at = many_shared<SIMDS, HALVES>(p);
  const HalvesLayout in = halves_layout<HALVES>(p);
  ManyRange range = many_range<SIMDS, WALKS>(t, p);
  const u32 queries = t.simd * at.query_words;
  const u32 key_half = kTileKeys / 2u * p.key_steps * 8u * HALVES;
  const u32 value_half = kTileKeys / 2u * p.value_blocks * 16u * HALVES;
  MF_GLOBAL(const u32)
  from = halves + (static_cast<u64>(t.group.y) * p.num_parts + range.tile - p.first_part) * in.tile;
  copy_first_half<HALVES>(t, p, at, range, range.tile, from, at.slots);
  ManyRow rows[2];
  stage_rows(t, p, q, range.own_row, queries, rows);
  f32 columns[BLOCKS * 16u];
  MF_UNROLL
  for (u32 i = 0u; i < BLOCKS * 16u; ++i) columns[i] = 0.0f;
  if (WALKS && p.resumes != 0u)
    resume_rows<BLOCKS>(t, p, out, partials, range.own_row, rows, columns);
  u32 slot = 0u;
  MF_ROLLED
  for (; range.tile < range.stop; ++range.tile) {
    const u32 tile = range.tile * kTileKeys;
    const bool active = tile < range.high && tile + kTileKeys > range.low;
    const u32 second = slot < 2u ? slot + 1u : 0u;
    const u32 third = slot > 0u ? slot - 1u : 2u;
    const u32 slots[3] = {at.slots + slot * at.slot_words, at.slots + second * at.slot_words,
                          at.slots + third * at.slot_words};
    const u32 factors = at.factors + (range.tile & 1u) * 3u * kTileKeys;
    f32 scores[kTileKeys / 2u];
    copies_wait<0>(t);
    barrier(t);
    copy_words(t, slots[1], from + key_half, key_half);
    copies_commit(t);
    copy_words(t, slots[2], from + in.values, value_half);
    copies_commit(t);
    if (active) score_half<HALVES>(t, p, queries, slots[0], factors, rows, scores);
    copies_wait<1>(t);
    barrier(t);
    copy_words(t, slots[0], from + (in.values + value_half), value_half);
    copies_commit(t);
    PartSum sums[2] = {no_sum(), no_sum()};
    TileRows weights[4];
    if (active) {
      score_half<HALVES>(t, p, queries, slots[1], factors + kTileKeys / 2u, rows,
                         scores + kTileKeys / 4u);
      if (tile < range.all_low || tile + kTileKeys > range.all_high) {
        mask_scores(t, p, range.own_row, tile, scores);
      }
      weigh_rows(t, MF_SHARED_AT(t, u32, (factors + 2u * kTileKeys) * 4u), scores, weights, sums);
    }
    copies_wait<0>(t);
    barrier(t);
    from = from + in.tile;
    copy_first_half<HALVES>(t, p, at, range, range.tile + 1u, from, slots[1]);
    slot = second;
    if (!WALKS) {
      keep_tile<HALVES>(t, p, partials, range.own_row, range.tile - p.first_part, sums, active,
                        slots[2], slots[0], weights);
    } else if (active) {
      add_tile<HALVES, BLOCKS>(t, p, slots[2], slots[0], weights, sums, rows, columns);
    }
  }
  if (WALKS) leave_rows<BLOCKS>(t, p, sinks, gate, out, partials, range.own_row, rows, columns);
}

#define MF_ATTENTION_MANY(name, SIMDS, WALKS, HALVES, BLOCKS, fits)                         \
  MF_FITS(SIMDS * 32u, fits)                                                                \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_READ(1, u32, halves),             \
            MF_READ(2, f32, sinks), MF_WRITE(3, f32, out), MF_WRITE(4, f32, partials),      \
            MF_READ(5, f32, gate)) {                                                        \
    MF_THREAD;                                                                              \
    attend_many<SIMDS, WALKS, HALVES, BLOCKS>(t, p, q, halves, sinks, out, partials, gate); \
  }
MF_ATTENTION_MANY(mma_attention_many_r128, 8u, true, 2u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_r64, 4u, true, 2u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_parts_r128, 8u, false, 2u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_parts_r64, 4u, false, 2u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_f16_r128, 8u, true, 1u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_f16_r64, 4u, true, 1u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_parts_f16_r128, 8u, false, 1u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_parts_f16_r64, 4u, false, 1u, kTileBlocks, 1u)
MF_ATTENTION_MANY(mma_attention_many_f16_r64_d128, 4u, true, 1u, kTileBlocks / 2u, 3u)
#undef MF_ATTENTION_MANY

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
