// Scores and weights of mma_attention_wide_many.h, and what a group has in shared memory: queries,
// two tiles of keys, weights of 64 rows and a tile.
#pragma once

#include "backend/gpu/dialect/team_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_tiles.h"
#include "backend/gpu/kernels/attention/mma_attention_wide.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/row_stage.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 {
  kWideManySimds = 12,
  kWideBringSimds = 8,
  kWideManyUnits = 5,   // of 128 columns, in a row
  kWideManyBlocks = 4,  // of 64 columns of results, in a team
  kWideManySums = kWideManyBlocks * 32u,
  kWideManyReads = 8,    // of four columns, under way at once
  kWideManyFactors = 3,  // of a key: of scores, of weights, and what weights' scores grow by
  kWideManyFactorWords = kWideKeys * kWideManyFactors,
  kWideSplitTiles = kWideSplit / kWideKeys,
};

/// The row of a key in its tile: a lane of a product has rows 2 i and 2 i + 1 of eight, and shall
/// have keys i and i + 4.
MF_FN u32 wide_many_row(u32 key) { return (key & ~7u) + key % 4u * 2u + key / 4u % 2u; }

/// Where things lie in shared memory, in words.
struct WideManyShared {
  u32 key_words;    // of a tile
  u32 query_words;  // of one half of queries
  u32 tiles;
  u32 tile_words;
  u32 weights;
  u32 factors;
  u32 query_factors;
  u32 keep;  // of a tile
  u32 add;
  u32 split_keep;
  u32 split_add;
  u32 finish;
};
MF_FN WideManyShared wide_many_shared(MF_PARAMS(AttentionParams) p) {
  WideManyShared at;
  at.key_words = p.key_words * kWideKeys;
  at.query_words = p.key_words * kWideManyRows;
  at.tiles = 2u * at.query_words;
  at.tile_words = p.value_words * kWideKeys;
  at.weights = at.tiles + 2u * at.tile_words;
  at.factors = at.weights + kWideManyRows * kWideKeys;
  at.query_factors = at.factors + 2u * kWideManyFactorWords;
  at.keep = at.query_factors + kWideManyRows;
  at.add = at.keep + kWideManyRows;
  at.split_keep = at.add + kWideManyRows;
  at.split_add = at.split_keep + kWideManyRows;
  at.finish = at.split_add + kWideManyRows;
  return at;
}

/// A tile's keys in halves, and their factors behind them. A lane i of four has columns 4 i to 4 i
/// + 3 of 16: two in word i of a piece and two in that of the next.
MF_FN void bring_wide_keys(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) k_pages,
                           MF_GLOBAL(u32) halves) {
  const u32 end = p.begin + p.tokens;
  const u32 tile = (p.first_part * kWideSplitTiles + t.group.x) * kWideKeys;
  const u32 key_words = p.key_words * kWideKeys;
  MF_GLOBAL(u32)
  to = halves + static_cast<u64>(t.group.y * p.num_parts * kWideSplitTiles + t.group.x) *
                    (key_words + kWideManyFactorWords);
  MF_GLOBAL(f32) factors = MF_CAST(f32, to + key_words);
  MF_ROLLED
  for (u32 key = t.simd; key < kWideKeys; key += kWideBringSimds) {
    const bool exists = tile + key >= p.first_key && tile + key < end;
    RowStage<u16, 1u, kWideManyUnits> stage;
    stage.load_row(
        t, 0u,
        position_row<u16>(t, p, k_pages, p.k_page, exists ? tile + key : end - 1u, t.group.y),
        p.head_dim, p.head_dim, exists);
    const u32 exponent = stage.exponent(t, 0u);
    MF_UNROLL
    for (u32 u = 0u; u < kWideManyUnits; ++u) {
      const u32 c = t.lane * 4u + 128u * u;
      if (c >= p.key_words * 2u) continue;
      const W2 pairs = larger_halves(scaled(stage.held[u].numbers(), into_halves(exponent)));
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        to[c / 64u * kTeamBlockWords + team_piece(wide_many_row(key), c / 16u * 2u + i) +
           c / 4u % 4u] = pairs.v[i];
      }
    }
    if (t.lane != 0u) continue;
    const f32 factor = value_factor(exponent);
    factors[key] = out_of_halves(exponent);
    factors[kWideKeys + key] = factor * weight_factor();
    factors[2u * kWideKeys + key] = static_cast<f32>(as_bits(factor) >> 23u) - 127.0f;
  }
}

/// Queries in halves, in blocks of 64 rows and 64 columns, and their factors with the scale.
MF_FN void stage_wide_queries(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                              WideManyShared at, u32 first_row) {
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
  MF_ROLLED
  for (u32 r = t.simd; r < kWideManyRows; r += kWideManySimds) {
    const QueryRow row = query_row(t, p, first_row + r);
    MF_GLOBAL(const f32) from = q;
    if (row.end > 0u) from = q + (row.token * p.q.token_stride + row.head * p.q.head_stride);
    RowStage<f32, 1u, kWideManyUnits> stage;
    stage.load_row(t, 0u, from, p.head_dim, 0u, row.end > 0u);
    const u32 exponent = stage.exponent(t, 0u);
    MF_UNROLL
    for (u32 u = 0u; u < kWideManyUnits; ++u) {
      const u32 c = t.lane * 4u + 128u * u;
      if (c >= p.key_words * 2u) continue;
      const W4 pairs = split_four(scaled(stage.held[u].numbers(), into_halves(exponent)));
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 word = c / 64u * (kWideManyRows * 32u) + c / 4u % 4u +
                         team_piece(r, c / 16u * 2u + i % 2u) + i / 2u * at.query_words;
        MF_SHARED_AT(t, u32, word * 4u)[0] = pairs.v[i];
      }
    }
    if (t.lane == 0u) factors[r] = out_of_halves(exponent) * p.scale;
  }
}

/// Sums of 64 rows and a tile over a half of the columns.
MF_FN void add_wide_scores(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, u32 slot,
                           u32 half, MF_LOCAL(TileDots<4u>) dots) {
  const u32 middle = (p.head_dim / 2u + 31u) / 32u;
  const u32 end = half == 0u ? middle : (p.head_dim + 31u) / 32u;
  const u32 low = at.query_words / 4u;
  const u32 tile = at.tiles / 4u + slot * (at.tile_words / 4u);
  MF_ROLLED
  for (u32 s = half == 0u ? 0u : middle; s < end; ++s) {
    const u32 x = s / 2u * (kWideManyRows * 8u) + s % 2u * 4u;
    const u32 y = tile + s / 2u * (kTeamBlockWords / 4u) + s % 2u * 4u;
    TeamHalves::begin(t);
    MF_UNROLL
    for (u32 step = 0u; step < 2u; ++step) {
      TeamHalves::add_rows(t, dots->low, low + x + step * 2u, y + step * 2u);
      TeamHalves::add_rows(t, dots->high, x + step * 2u, y + step * 2u);
    }
    TeamHalves::end(t);
  }
}
MF_FN void hold_wide_scores(MF_LOCAL(TileDots<4u>) dots) {
  TeamHalves::hold<16u>(dots->low);
  TeamHalves::hold<16u>(dots->high);
}

/// A lane's scores of the rows g and g + 8: of the keys 16 k + quad + 4 e, number 4 k + e.
struct WideScores {
  f32 of[2][8];
};
MF_FN WideScores wide_scores(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, u32 slot) {
  TileDots<4u> halves[2];
  MF_UNROLL
  for (u32 h = 0u; h < 2u; ++h) {
    halves[h].clear();
    hold_wide_scores(&halves[h]);
  }
  add_wide_scores(t, p, at, slot, 0u, &halves[0]);
  add_wide_scores(t, p, at, slot, 1u, &halves[1]);
  MF_SHARED(f32)
  key_factors = MF_SHARED_AT(t, f32, (at.factors + slot * kWideManyFactorWords) * 4u);
  MF_SHARED(f32)
  query_factors = MF_SHARED_AT(t, f32, (at.query_factors + t.simd * 16u + t.lane / 4u) * 4u);
  TeamHalves::wait<0u>(t);
  WideScores scores;
  MF_UNROLL
  for (u32 h = 0u; h < 2u; ++h) hold_wide_scores(&halves[h]);
  MF_UNROLL
  for (u32 i = 0u; i < 8u; ++i) {
    const f32 factor = key_factors[i / 4u * 16u + (t.lane & 3u) + i % 4u * 4u];
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      const u32 e = i % 2u + below * 2u;
      const f32 own = query_factors[below * 8u];
      scores.of[below][i] =
          halves[0].dot(i / 2u, e) * factor * own + halves[1].dot(i / 2u, e) * factor * own;
    }
  }
  return scores;
}

/// A row that a lane has, with three others.
struct WideRow {
  u32 number;
  QueryRow query;
  PartSum sum;  // of a split
  PartSum all;
};

/// How a tile's sums join those of its split, as mma_attention_wide.h has it.
MF_FN PartMerge merge_wide_tile(PartSum sum, PartSum own, bool is_tiled) {
  if (is_tiled) return merge_parts(sum, own);
  PartMerge merge;
  merge.keep = sum.largest == -mf_infinity() ? 0.0f : mf_exp2(sum.largest - own.largest);
  merge.add = 1.0f;
  merge.all.largest = own.largest;
  merge.all.total = mf_fma(sum.total, merge.keep, own.total);
  return merge;
}

MF_FN bool ends_wide_split(u32 tile, u32 last_tile) {
  return tile == last_tile || (tile + 1u) % kWideSplitTiles == 0u;
}
MF_FN bool is_wide_tiled(u32 tile) {
  return tile / kWideSplitTiles < static_cast<u32>(kWideTiledSplits);
}

MF_FN bool sees_key(QueryRow query, u32 key) { return key - query.begin < query.end - query.begin; }

/// Turns a lane's scores of both its rows into weights in halves, of which a row's largest is 1, or
/// less if one before was larger. Both rows go together, as each of their steps waits for the last.
template <bool WHOLE>
MF_FN void weigh_wide_scores(MF_T t, WideManyShared at, u32 slot, MF_LOCAL(WideScores) scores,
                             MF_LOCAL(const WideRow) rows, u32 tile, MF_LOCAL(PartSum) sums) {
  const u32 quad = t.lane & 3u;
  MF_SHARED(f32)
  factors =
      MF_SHARED_AT(t, f32, (at.factors + slot * kWideManyFactorWords + kWideKeys + quad) * 4u);
  const u32 first_key = tile * kWideKeys + quad;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    sums[below].largest =
        is_wide_tiled(tile) ? -mf_infinity() : static_cast<f32>(rows[below].sum.largest);
  }
  MF_UNROLL
  for (u32 i = 0u; i < 8u; ++i) {
    const u32 key = i / 4u * 16u + i % 4u * 4u;
    const f32 shift = factors[kWideKeys + key];
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      if (WHOLE || sees_key(rows[below].query, first_key + key)) {
        sums[below].largest = mf_max(sums[below].largest, scores->of[below][i] + shift);
      }
    }
  }
  MF_UNROLL
  for (u32 lanes = 2u; lanes > 0u; lanes /= 2u) {
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      const f32 largest = sums[below].largest;
      sums[below].largest = mf_max(largest, simd_shuffle_xor(t, largest, lanes));
    }
  }
  W4 halves[2][2];
  MF_UNROLL
  for (u32 k = 0u; k < 2u; ++k) {
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      F4 weights;
      f32 w[4];
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        const u32 key = k * 16u + e * 4u;
        const bool is_seen = WHOLE || sees_key(rows[below].query, first_key + key);
        w[e] = is_seen ? mf_exp2(scores->of[below][k * 4u + e] - sums[below].largest) : 0.0f;
        weights.v[e] = is_seen ? w[e] * factors[key] : 0.0f;
      }
      const f32 four = (w[0] + w[1]) + (w[2] + w[3]);
      sums[below].total = k == 0u ? four : sums[below].total + four;
      halves[below][k] = split_four(weights);
    }
  }
  MF_UNROLL
  for (u32 lanes = 2u; lanes > 0u; lanes /= 2u) {
    MF_UNROLL
    for (u32 below = 0u; below < 2u; ++below) {
      sums[below].total = sums[below].total + simd_shuffle_xor(t, sums[below].total, lanes);
    }
  }
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) {
      const u32 piece = i / 4u * 4u + i / 2u % 2u * 2u + i % 2u;
      MF_SHARED_AT(t, u32, (at.weights + team_piece(rows[below].number, piece) + quad) * 4u)
      [0] = halves[below][i / 2u % 2u].v[i / 4u * 2u + i % 2u];
    }
  }
}

/// The same, and what the rows' columns are multiplied by, in shared memory.
MF_FN void weigh_wide_rows(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, u32 slot,
                           MF_LOCAL(WideScores) scores, MF_GLOBAL(const f32) sinks, u32 tile,
                           u32 last_tile, MF_LOCAL(WideRow) rows) {
  const bool leads = (t.lane & 3u) == 0u;
  const bool ends = ends_wide_split(tile, last_tile);
  bool is_whole = true;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    if (tile % kWideSplitTiles == 0u) rows[below].sum = no_sum();
    is_whole = is_whole && rows[below].query.begin <= tile * kWideKeys &&
               (tile + 1u) * kWideKeys <= rows[below].query.end;
  }
  PartSum own[2];
  if (simd_ballot(t, !is_whole) == 0u) {
    weigh_wide_scores<true>(t, at, slot, scores, rows, tile, own);
  } else {
    weigh_wide_scores<false>(t, at, slot, scores, rows, tile, own);
  }
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const PartMerge merge = merge_wide_tile(rows[below].sum, own[below], is_wide_tiled(tile));
    const u32 number = rows[below].number;
    rows[below].sum = merge.all;
    if (leads) {
      MF_SHARED_AT(t, f32, at.keep * 4u)[number] = merge.keep;
      MF_SHARED_AT(t, f32, at.add * 4u)[number] = merge.add;
    }
    if (!ends) continue;
    const PartMerge split = merge_parts(rows[below].all, rows[below].sum);
    const QueryRow query = rows[below].query;
    rows[below].all = split.all;
    if (!leads) continue;
    MF_SHARED_AT(t, f32, at.split_keep * 4u)[number] = split.keep;
    MF_SHARED_AT(t, f32, at.split_add * 4u)[number] = split.add;
    if (tile != last_tile) continue;
    MF_SHARED_AT(t, f32, at.finish * 4u)
    [number] = query.end == 0u ? 0.0f : finish_factor(p, rows[below].all, sinks, query.head);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
