// Wide attention of many queries where a position's value is the first part of its key and pages
// are in f16: latent attention in prompts. Keys come in halves that mma_attention_wide_halves makes
// once for all queries; the smaller ones are zeros and left out (mma_attention_halves.h). A group
// has 64 rows, a tile of 32 keys in each of two places in shared memory and three teams of four
// SIMD groups: one makes scores and weights, two have a half of the results' columns each. All read
// the same tile, in rows for scores and in columns for results, and sums have the order of
// mma_attention_wide.h.
#pragma once

#include "backend/gpu/dialect/team_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_wide.h"
#include "backend/gpu/kernels/attention/mma_attention_wide_weights.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Columns += weights times values of a tile: of 16 keys the smaller halves, then the larger ones.
/// Product e has columns 8 e to 8 e + 7 as they lie.
MF_FN void add_wide_values(MF_T t, WideManyShared at, u32 values, MF_LOCAL(f32) columns) {
  TeamHalves::hold<kWideManySums>(columns);
  TeamHalves::begin(t);
  MF_UNROLL
  for (u32 k = 0u; k < 2u; ++k) {
    const u32 keys = values / 4u + k * (kTeamEightWords / 2u);
    TeamHalves::add_columns<kWideManyBlocks * 64u>(t, columns, at.weights / 4u + 4u + k * 2u, keys);
    TeamHalves::add_columns<kWideManyBlocks * 64u>(t, columns, at.weights / 4u + k * 2u, keys);
  }
  TeamHalves::end(t);
  TeamHalves::wait<0u>(t);
  TeamHalves::hold<kWideManySums>(columns);
}

/// The same of 16 columns, by a SIMD group for itself: a team has no registers for such sums.
MF_FN void own_wide_values(MF_T t, WideManyShared at, u32 values, u32 piece, MF_LOCAL(f32) sums) {
  const u32 first = (t.simd & 3u) * 16u + t.lane % 16u;
  MF_UNROLL
  for (u32 k = 0u; k < 2u; ++k) {
    const W4 v = load_tiles<true>(
        t, values + k * (2u * kTeamEightWords) + team_piece(t.lane % 16u, piece + t.lane / 16u));
    MF_UNROLL
    for (u32 half = 2u; half > 0u; --half) {
      const W4 weights = load_tiles<false>(
          t, at.weights + team_piece(first, half * 4u - 4u + k * 2u + t.lane / 16u));
      multiply_add(t, sums, weights, v.v[0], v.v[1]);
      multiply_add(t, sums + 4u, weights, v.v[2], v.v[3]);
    }
  }
}

MF_FN void clear_wide_columns(MF_LOCAL(f32) columns) {
  MF_UNROLL
  for (u32 i = 0u; i < kWideManySums; ++i) columns[i] = 0.0f;
}

/// Adds a tile to a team's columns, which shrink first; sums of a tile that stands for itself are
/// made apart.
MF_FN void add_wide_tile(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, u32 slot,
                         u32 team, u32 tile, MF_LOCAL(f32) columns) {
  const bool begins = tile % kWideSplitTiles == 0u;
  if (begins) {
    clear_wide_columns(columns);
    // Keeps this a branch: selections of each column in all tiles take longer.
    TeamHalves::hold<kWideManySums>(columns);
  }
  if (team * (kWideManyBlocks * 64u) >= p.v_head_dim) return;
  const u32 values = at.tiles + slot * at.tile_words + team * kWideManyBlocks * kTeamBlockWords;
  const u32 row = (t.simd & 3u) * 16u + t.lane / 4u;
  f32 keep[2];
  f32 add[2];
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    keep[below] = MF_SHARED_AT(t, f32, at.keep * 4u)[row + below * 8u];
    add[below] = MF_SHARED_AT(t, f32, at.add * 4u)[row + below * 8u];
  }
  if (!is_wide_tiled(tile)) {
    if (!begins) {
      MF_UNROLL
      for (u32 i = 0u; i < kWideManySums; ++i) columns[i] = columns[i] * keep[i / 2u % 2u];
    }
    add_wide_values(t, at, values, columns);
    return;
  }
  MF_UNROLL
  for (u32 b = 0u; b < kWideManyBlocks * 4u; ++b) {
    f32 sums[8];
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) sums[i] = 0.0f;
    own_wide_values(t, at, values + b / 4u * kTeamBlockWords, b % 4u * 2u, sums);
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) {
      columns[b * 8u + i] =
          mf_fma(columns[b * 8u + i], keep[i / 2u % 2u], sums[i] * add[i / 2u % 2u]);
    }
  }
}

/// Factors of a split's columns and of those of the splits before it: of the rows g and g + 8.
struct WideSplitFactors {
  f32 keep[2];
  f32 add[2];
  f32 finish[2];
};
MF_FN WideSplitFactors wide_split_factors(MF_T t, WideManyShared at, bool finishes) {
  WideSplitFactors factors;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const u32 r = (t.simd & 3u) * 16u + t.lane / 4u + below * 8u;
    factors.keep[below] = MF_SHARED_AT(t, f32, at.split_keep * 4u)[r];
    factors.add[below] = MF_SHARED_AT(t, f32, at.split_add * 4u)[r];
    factors.finish[below] = 1.0f;
    if (finishes) factors.finish[below] = MF_SHARED_AT(t, f32, at.finish * 4u)[r];
  }
  return factors;
}

/// Adds a split's columns to those of the splits before it, which lie in `out`.
MF_FN void add_wide_split(MF_T t, MF_PARAMS(AttentionParams) p, u32 team,
                          MF_LOCAL(const WideSplitFactors) factors, MF_LOCAL(const f32) columns,
                          MF_GLOBAL(f32) out, u32 first_row, bool is_first, bool finishes) {
  const u32 quad = t.lane & 3u;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const u32 r = (t.simd & 3u) * 16u + t.lane / 4u + below * 8u;
    const QueryRow row = query_row(t, p, first_row + r);
    if (row.end == 0u) continue;
    MF_GLOBAL(f32) to = out + (row.token * p.out.token_stride + row.head * p.out.head_stride);
    const f32 keep = factors->keep[below];
    const f32 add = factors->add[below];
    const f32 factor = factors->finish[below];
    const bool adds_to = !is_first && keep != 0.0f;
    const u32 first = team * kWideManyBlocks * 64u + quad * 4u;
    MF_UNROLL
    for (u32 begin = 0u; begin < kWideManyBlocks * 4u; begin += kWideManyReads) {
      F4 fours[kWideManyReads];
      MF_UNROLL
      for (u32 i = 0u; i < kWideManyReads; ++i) fours[i] = no_columns();
      if (!is_first) {
        MF_UNROLL
        for (u32 i = 0u; i < kWideManyReads; ++i) {
          // Without a branch of its own, or each waits for the one before.
          const u32 c = first + (begin + i) * 16u;
          fours[i] = load4(MF_CAST(const f32, to + (c < p.v_head_dim ? c : 0u)));
        }
      }
      MF_UNROLL
      for (u32 i = 0u; i < kWideManyReads; ++i) {
        const u32 c = first + (begin + i) * 16u;
        MF_UNROLL
        for (u32 e = 0u; e < 4u; ++e) {
          const u32 product = (begin + i) * 2u + e / 2u;
          const f32 own = columns[product * 4u + below * 2u + e % 2u] * wide_factor();
          const f32 value = mf_fma(adds_to ? fours[i].v[e] : 0.0f, keep, own * add);
          fours[i].v[e] = finishes ? mf_fma(value, factor, 0.0f) : value;
        }
        if (c < p.v_head_dim) store4(to + c, fours[i]);
      }
    }
  }
}

/// Copies a tile with threads from `first` on.
MF_FN void copy_wide_tile(MF_T t, WideManyShared at, u32 slot, MF_GLOBAL(const u32) from,
                          u32 first) {
  MF_SHARED(u32) keys = MF_SHARED_AT(t, u32, (at.tiles + slot * at.tile_words) * 4u);
  MF_SHARED(u32) factors = MF_SHARED_AT(t, u32, (at.factors + slot * kWideManyFactorWords) * 4u);
  const u32 begin = (t.index - first) * 4u;
  const u32 step = (t.threads - first) * 4u;
  for (u32 i = begin; i < at.key_words; i += step) copy_async4(t, keys + i, from + i);
  if (begin < kWideManyFactorWords) {
    copy_async4(t, factors + begin, from + (at.key_words + begin));
  }
}

/// The tiles that a group walks through.
struct WideTiles {
  u32 begin;
  u32 end;
  u32 first;  // of its rows, in any launch
  u32 last;
};

/// Teams wait for each other twice a tile: when scores are there and results of the tile before,
/// and when weights are there and the keys of the tile behind the next.
MF_FN void meet_wide_teams(MF_T t) { barrier(t); }

/// Team 0: scores of a tile and its weights, while the others add the tile before.
MF_FN void weigh_wide_tiles(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at,
                            WideTiles tiles, u32 first_row, MF_GLOBAL(const f32) sinks,
                            MF_GLOBAL(f32) partials) {
  const bool leads = (t.lane & 3u) == 0u;
  WideRow rows[2];
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const u32 number = t.simd * 16u + t.lane / 4u + below * 8u;
    const QueryRow query = query_row(t, p, first_row + number);
    rows[below].number = number;
    rows[below].query = query;
    rows[below].sum = no_sum();
    rows[below].all = no_sum();
    if (tiles.begin == tiles.first || query.end == 0u) continue;
    rows[below].all = resume_sum(p, partials, query);
  }
  MF_ROLLED
  for (u32 tile = tiles.begin; tile < tiles.end; ++tile) {
    const u32 slot = (tile - tiles.begin) % 2u;
    WideScores scores = wide_scores(t, p, at, slot);
    meet_wide_teams(t);
    weigh_wide_rows(t, p, at, slot, &scores, sinks, tile, tiles.last, rows);
    copies_publish(t);
    meet_wide_teams(t);
  }
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const QueryRow query = rows[below].query;
    if (tiles.end > tiles.last || !leads || query.end == 0u) continue;
    leave_sum(p, partials, query, rows[below].all);
  }
}

/// The other teams: a half of the results' columns each. They copy keys too.
MF_FN void add_wide_tiles(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, WideTiles tiles,
                          u32 team, u32 first_row, MF_GLOBAL(const u32) from, MF_GLOBAL(f32) out) {
  f32 columns[kWideManySums];
  clear_wide_columns(columns);
  const u32 words = at.key_words + kWideManyFactorWords;
  MF_ROLLED
  for (u32 tile = tiles.begin; tile <= tiles.end; ++tile) {
    const u32 before = tile - 1u;
    const bool ends = tile > tiles.begin && ends_wide_split(before, tiles.last);
    WideSplitFactors factors;
    if (tile > tiles.begin) {
      add_wide_tile(t, p, at, (before - tiles.begin) % 2u, team, before, columns);
    }
    if (ends) factors = wide_split_factors(t, at, before == tiles.last);
    if (tile < tiles.end) meet_wide_teams(t);
    if (tile > tiles.begin && tile + 1u < tiles.end) {
      const u32 next = tile + 1u - tiles.begin;
      copy_wide_tile(t, at, next % 2u, from + static_cast<u64>(next) * words, 128u);
    }
    copies_commit(t);
    if (ends) {
      add_wide_split(t, p, team, &factors, columns, out, first_row,
                     before / kWideSplitTiles == tiles.first / kWideSplitTiles,
                     before == tiles.last);
    }
    if (tile == tiles.end) break;
    copies_wait<0>(t);
    copies_publish(t);
    meet_wide_teams(t);
  }
}

/// Group x: 64 rows, the last ones first, as they take longest; y: a kv head. `halves` has the
/// splits from p.first_part on; launches for later ones take up the rows where earlier ones left
/// them, with their sums in `partials`.
MF_FN void attend_wide_many(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                            MF_GLOBAL(const u32) halves, MF_GLOBAL(const f32) sinks,
                            MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials) {
  const WideManyShared at = wide_many_shared(p);
  const u32 count = p.tokens * p.heads_per_kv_head;
  const u32 groups = (count + kWideManyRows - 1u) / kWideManyRows;
  const u32 first_row = (groups - 1u - t.group.x) * kWideManyRows;
  const u32 behind = first_row + kWideManyRows;
  const u32 all = p.num_parts * kWideSplitTiles;
  const u32 low = p.first_part * kWideSplitTiles;
  WideTiles tiles;
  tiles.first = query_row(t, p, first_row).begin / kWideKeys;
  tiles.last = (query_row(t, p, (behind < count ? behind : count) - 1u).end - 1u) / kWideKeys;
  tiles.begin = tiles.first > low ? tiles.first : low;
  tiles.end = tiles.last + 1u < low + all ? tiles.last + 1u : low + all;
  if (tiles.begin >= tiles.end) return;
  const u32 words = at.key_words + kWideManyFactorWords;
  MF_GLOBAL(const u32)
  from = halves + static_cast<u64>(t.group.y * all + tiles.begin - low) * words;
  copy_wide_tile(t, at, 0u, from, 0u);
  if (tiles.begin + 1u < tiles.end) copy_wide_tile(t, at, 1u, from + words, 0u);
  copies_commit(t);
  // Columns that results have and keys lack.
  for (u32 i = at.key_words + t.index; i < at.tile_words; i += t.threads) {
    MF_SHARED_AT(t, u32, (at.tiles + i) * 4u)[0] = 0u;
    MF_SHARED_AT(t, u32, (at.tiles + at.tile_words + i) * 4u)[0] = 0u;
  }
  stage_wide_queries(t, p, q, at, first_row);
  copies_wait<0>(t);
  copies_publish(t);
  barrier(t);
  const u32 team = simd_shuffle(t, t.simd / 4u, 0u);
  if (team == 0u) {
    team_gives_registers<104u>(t);
    weigh_wide_tiles(t, p, at, tiles, first_row, sinks, partials);
  } else {
    team_takes_registers<200u>(t);
    add_wide_tiles(t, p, at, tiles, team - 1u, first_row, from, out);
  }
}

MF_FITS(256, 1)
MF_KERNEL(mma_attention_wide_halves_f16, AttentionParams, MF_READ(0, u64, k_pages),
          MF_WRITE(1, u32, halves)) {
  MF_THREAD;
  bring_wide_keys(t, p, k_pages, halves);
}

MF_FITS(384, 1)
MF_KERNEL(mma_attention_wide_many_f16_r64, AttentionParams, MF_READ(0, f32, q),
          MF_READ(1, u32, halves), MF_READ(2, f32, sinks), MF_WRITE(3, f32, out),
          MF_WRITE(4, f32, partials)) {
  MF_THREAD;
  attend_wide_many(t, p, q, halves, sinks, out, partials);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
