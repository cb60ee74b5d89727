// Wide attention of many queries where a position's value is the first part of its key and pages
// are in f16: latent attention in prompts. Keys come in halves that mma_attention_wide_halves makes
// once for all queries; the smaller ones are zeros and left out (mma_attention_halves.h). A group
// has 64 rows, and a tile of 32 keys in each of two places in shared memory. Four SIMD groups, a
// team, have 16 rows each: in scores one half of the columns, in results the first or the other 256
// columns. So the same tile is read in rows and in columns, and sums have the order of
// mma_attention_wide.h.
#pragma once

#include "backend/gpu/dialect/tile_loads.h"
#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_many.h"
#include "backend/gpu/kernels/attention/mma_attention_tiles.h"
#include "backend/gpu/kernels/attention/mma_attention_wide.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/row_stage.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 {
  kWideManySimds = 8,
  kWideManyUnits = 5,   // of 128 columns, in a row
  kWideManyBlocks = 4,  // of 64 columns of results, in a team
  kWideManySums = kWideManyBlocks * 32u,
  kWideManyReads = 8,    // of four columns, under way at once
  kWideManyFactors = 3,  // of a key: of scores, of weights, and what weights' scores grow by
  kWideSplitTiles = kWideSplit / kWideKeys,
};

/// Where a piece of 8 columns of a key lies in its row: pieces of eight keys are read together. Of
/// 16 columns, a step of products, lane i of four has 4 i to 4 i + 3: two in word i of a piece and
/// two in that of the next.
MF_FN u32 wide_many_piece(u32 key, u32 piece) { return piece ^ (key & 7u); }

/// Number r of eight keys in the order of products, of which a lane has keys k and k + 4.
MF_FN u32 wide_many_key(u32 r) { return r / 2u + r % 2u * 4u; }

/// Words of a tile of keys: rows, then factors.
MF_FN u32 wide_many_tile_words(MF_PARAMS(AttentionParams) p) {
  return kWideKeys * (p.key_words + kWideManyFactors);
}

/// Where things lie in shared memory, in words.
struct WideManyShared {
  u32 steps;  // of 16 columns of queries
  u32 tiles;
  u32 tile_words;
  u32 scores;
  u32 query_factors;
  u32 keep;  // of a tile
  u32 add;
  u32 split_keep;
  u32 split_add;
  u32 finish;
};
MF_FN WideManyShared wide_many_shared(MF_PARAMS(AttentionParams) p) {
  WideManyShared at;
  at.steps = wide_columns(p.head_dim) / 16u;
  at.tiles = kWideManyRows / 16u * at.steps * kTileRowsWords;
  at.tile_words = wide_many_tile_words(p);
  at.scores = at.tiles + 2u * at.tile_words;
  at.query_factors = at.scores + kWideManyRows * kWideKeys;
  at.keep = at.query_factors + kWideManyRows;
  at.add = at.keep + kWideManyRows;
  at.split_keep = at.add + kWideManyRows;
  at.split_add = at.split_keep + kWideManyRows;
  at.finish = at.split_add + kWideManyRows;
  return at;
}

/// A tile's keys in halves, and their factors.
MF_FN void bring_wide_keys(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) k_pages,
                           MF_GLOBAL(u32) halves) {
  const u32 end = p.begin + p.tokens;
  const u32 tile = (p.first_part * kWideSplitTiles + t.group.x) * kWideKeys;
  MF_GLOBAL(u32)
  to = halves + static_cast<u64>(t.group.y * p.num_parts * kWideSplitTiles + t.group.x) *
                    wide_many_tile_words(p);
  MF_GLOBAL(f32) factors = MF_CAST(f32, to + kWideKeys * p.key_words);
  MF_ROLLED
  for (u32 key = t.simd; key < kWideKeys; key += kWideManySimds) {
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
        const u32 piece = wide_many_piece(key, c / 16u * 2u + i);
        to[key * p.key_words + piece * 4u + c / 4u % 4u] = pairs.v[i];
      }
    }
    if (t.lane != 0u) continue;
    const f32 factor = value_factor(exponent);
    factors[key] = out_of_halves(exponent);
    factors[kWideKeys + key] = factor * weight_factor();
    factors[2u * kWideKeys + key] = static_cast<f32>(as_bits(factor) >> 23u) - 127.0f;
  }
}

/// Queries in halves, as lanes hold them, and their factors with the scale.
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
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, r / 16u * at.steps * kTileRowsWords * 4u);
    MF_UNROLL
    for (u32 u = 0u; u < kWideManyUnits; ++u) {
      const u32 step = u * 8u + t.lane / 4u;
      if (step >= at.steps) continue;
      store_piece(to + step * kTileRowsWords, r % 16u, t.lane & 3u,
                  split_four(scaled(stage.held[u].numbers(), into_halves(exponent))));
    }
    if (t.lane == 0u) factors[r] = out_of_halves(exponent) * p.scale;
  }
}

/// Scores of 16 rows and a tile over a team's half of the columns. scores[4 n + i] is of row g, or
/// g + 8 from i = 2 on, and of key 8 n + quad + i % 2 * 4: a lane's keys are those of its weights.
MF_FN void score_wide_tile(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, u32 slot,
                           MF_LOCAL(f32) scores) {
  const u32 row_tile = t.simd & 3u;
  const u32 quad = t.lane & 3u;
  const u32 g = t.lane / 4u;
  const u32 middle = (p.head_dim / 2u + 31u) / 32u;
  const u32 begin = t.simd < 4u ? 0u : middle;
  const u32 end = t.simd < 4u ? middle : at.steps / 2u;
  MF_SHARED(u32)
  x = MF_SHARED_AT(t, u32,
                   ((row_tile * at.steps + 2u * begin) * kTileRowsWords + t.lane * 4u) * 4u);
  const u32 key = wide_many_key(t.lane % 8u);
  const u32 keys = slot + key * p.key_words;
  const u32 stride = 8u * p.key_words;
  TileDots<4u> dots;
  dots.clear();
  MF_ROLLED
  for (u32 s = begin; s < end; ++s) {
    const u32 own = keys + wide_many_piece(key, s * 4u + t.lane / 8u) * 4u;
    W4 k[4];
    MF_UNROLL
    for (u32 n = 0u; n < 4u; ++n) k[n] = load_tiles<false>(t, own + n * stride);
    MF_UNROLL
    for (u32 step = 0u; step < 2u; ++step) {
      const TileRows rows = load_rows(x + step * kTileRowsWords);
      MF_UNROLL
      for (u32 n = 0u; n < 4u; ++n) {
        multiply_add(t, dots.low + n * 4u, rows.low, k[n].v[step * 2u], k[n].v[step * 2u + 1u]);
      }
      MF_UNROLL
      for (u32 n = 0u; n < 4u; ++n) {
        multiply_add(t, dots.high + n * 4u, rows.high, k[n].v[step * 2u], k[n].v[step * 2u + 1u]);
      }
    }
    x = x + 2u * kTileRowsWords;
  }
  MF_SHARED(f32) key_factors = MF_SHARED_AT(t, f32, (slot + kWideKeys * p.key_words) * 4u);
  MF_SHARED(f32)
  query_factors = MF_SHARED_AT(t, f32, (at.query_factors + row_tile * 16u + g) * 4u);
  MF_UNROLL
  for (u32 n = 0u; n < 4u; ++n) {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      scores[n * 4u + i] =
          dots.dot(n, i) * key_factors[n * 8u + quad + i % 2u * 4u] * query_factors[i / 2u * 8u];
    }
  }
}

/// Where a row's scores of a tile lie, and then its weights in halves: pieces of four words.
MF_FN u32 wide_many_scores(WideManyShared at, u32 row, u32 piece) {
  return at.scores + row * kWideKeys + (piece ^ (row % 8u / 2u + row % 2u * 4u)) * 4u;
}

/// A TEAM keeps the scores of rows g, the other one those of rows g + 8. Gives away the others of a
/// lane.
template <u32 TEAM>
MF_FN void give_scores(MF_T t, WideManyShared at, MF_LOCAL(const f32) scores) {
  const u32 row = (t.simd & 3u) * 16u + t.lane / 4u + (1u - TEAM) * 8u;
  MF_UNROLL
  for (u32 k = 0u; k < 2u; ++k) {
    F4 four;
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      four.v[e] = scores[(k * 2u + e / 2u) * 4u + e % 2u + (1u - TEAM) * 2u];
    }
    store4(MF_SHARED_AT(t, f32, wide_many_scores(at, row, k * 4u + (t.lane & 3u)) * 4u), four);
  }
}

/// Turns a lane's scores of its row into weights in halves, of which the largest is 1, or less if
/// `largest` was larger. The lane's keys are 16 k + quad + 4 e.
template <u32 TEAM>
MF_FN PartSum weigh_wide_tile(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, u32 slot,
                              MF_LOCAL(const f32) scores, f32 largest, QueryRow row, u32 tile) {
  const u32 quad = t.lane & 3u;
  const u32 r = (t.simd & 3u) * 16u + t.lane / 4u + TEAM * 8u;
  MF_SHARED(f32)
  factors = MF_SHARED_AT(t, f32, (slot + kWideKeys * (p.key_words + 1u) + quad) * 4u);
  const u32 seen_from = tile + quad - row.begin;
  const u32 seen = row.end - row.begin;
  f32 whole[8];
  MF_UNROLL
  for (u32 k = 0u; k < 2u; ++k) {
    const F4 others = load4(MF_SHARED_AT(t, f32, wide_many_scores(at, r, k * 4u + quad) * 4u));
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      const u32 key = k * 16u + e * 4u;
      const f32 own = scores[(k * 2u + e / 2u) * 4u + e % 2u + TEAM * 2u] + others.v[e];
      const bool is_seen = seen_from + key < seen;
      whole[k * 4u + e] = is_seen ? own : -mf_infinity();
      if (is_seen) largest = mf_max(largest, own + factors[kWideKeys + key]);
    }
  }
  largest = mf_max(largest, simd_shuffle_xor(t, largest, 2u));
  largest = mf_max(largest, simd_shuffle_xor(t, largest, 1u));
  simd_barrier(t);  // all lanes have their row's scores
  f32 part = 0.0f;
  MF_UNROLL
  for (u32 k = 0u; k < 2u; ++k) {
    F4 weights;
    f32 w[4];
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      const u32 key = k * 16u + e * 4u;
      const bool is_seen = seen_from + key < seen;
      w[e] = is_seen ? mf_exp2(whole[k * 4u + e] - largest) : 0.0f;
      weights.v[e] = is_seen ? w[e] * factors[key] : 0.0f;
    }
    const f32 four = (w[0] + w[1]) + (w[2] + w[3]);
    part = k == 0u ? four : part + four;
    const W4 halves = split_four(weights);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 piece = i / 2u * 4u + k * 2u + i % 2u;
      MF_SHARED_AT(t, u32, (wide_many_scores(at, r, piece) + quad) * 4u)[0] = halves.v[i];
    }
  }
  part = part + simd_shuffle_xor(t, part, 2u);
  part = part + simd_shuffle_xor(t, part, 1u);
  const PartSum sum = {largest, part};
  return sum;
}

/// 64 columns += weights times values of a tile: product e has columns 8 e to 8 e + 7 as they lie.
MF_FN void multiply_wide_tile(MF_T t, MF_PARAMS(AttentionParams) p, u32 slot, u32 block,
                              MF_LOCAL(const W4) weights, MF_LOCAL(f32) sums) {
  const u32 key = wide_many_key(t.lane % 8u);
  const u32 values = slot + (t.lane / 8u % 2u * 8u + key) * p.key_words + block * 32u;
  MF_UNROLL
  for (u32 k = 0u; k < 2u; ++k) {
    W4 b[4];
    MF_UNROLL
    for (u32 j = 0u; j < 4u; ++j) {
      const u32 piece = wide_many_piece(key, j * 2u + t.lane / 16u);
      b[j] = load_tiles<true>(t, values + k * 16u * p.key_words + piece * 4u);
    }
    MF_UNROLL
    for (u32 e = 0u; e < 8u; ++e) {
      multiply_add(t, sums + e * 4u, weights[2u + k], b[e / 2u].v[e % 2u * 2u],
                   b[e / 2u].v[e % 2u * 2u + 1u]);
    }
    MF_UNROLL
    for (u32 e = 0u; e < 8u; ++e) {
      multiply_add(t, sums + e * 4u, weights[k], b[e / 2u].v[e % 2u * 2u],
                   b[e / 2u].v[e % 2u * 2u + 1u]);
    }
  }
}

/// How 16 rows of columns and of a tile's sums become new columns, of the rows g and g + 8.
struct WideFactors {
  f32 keep[2];
  f32 add[2];
};

/// Adds a tile to 64 columns, which shrink first; sums of a tile that stands for itself are made
/// apart.
template <bool TILED>
MF_FN void add_wide_block(MF_T t, MF_PARAMS(AttentionParams) p, u32 slot, u32 block,
                          MF_LOCAL(const W4) weights, WideFactors factors, MF_LOCAL(f32) columns) {
  if (!TILED) {
    MF_UNROLL
    for (u32 i = 0u; i < 32u; ++i) columns[i] = columns[i] * factors.keep[i / 2u % 2u];
    multiply_wide_tile(t, p, slot, block, weights, columns);
    return;
  }
  f32 sums[32];
  MF_UNROLL
  for (u32 i = 0u; i < 32u; ++i) sums[i] = 0.0f;
  multiply_wide_tile(t, p, slot, block, weights, sums);
  MF_UNROLL
  for (u32 i = 0u; i < 32u; ++i) {
    columns[i] = mf_fma(columns[i], factors.keep[i / 2u % 2u], sums[i] * factors.add[i / 2u % 2u]);
  }
}

/// Adds a tile to a SIMD group's columns.
template <bool TILED>
MF_FN void add_wide_tile(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at, u32 slot,
                         MF_LOCAL(f32) columns) {
  W4 weights[4];  // the larger halves of two steps of 16 keys, then the smaller ones
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 r = (t.simd & 3u) * 16u + t.lane % 16u;
    weights[i] = load_tiles<false>(t, wide_many_scores(at, r, i * 2u + t.lane / 16u));
  }
  const u32 row = (t.simd & 3u) * 16u + t.lane / 4u;
  WideFactors factors;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    factors.keep[below] = MF_SHARED_AT(t, f32, at.keep * 4u)[row + below * 8u];
    factors.add[below] = MF_SHARED_AT(t, f32, at.add * 4u)[row + below * 8u];
  }
  MF_UNROLL
  for (u32 b = 0u; b < kWideManyBlocks; ++b) {
    const u32 block = t.simd / 4u * kWideManyBlocks + b;
    if (block * 64u < p.v_head_dim) {
      add_wide_block<TILED>(t, p, slot, block, weights, factors, columns + b * 32u);
    }
  }
}

/// Adds a split's columns to those of the splits before it, which lie in `out`.
MF_FN void add_wide_split(MF_T t, MF_PARAMS(AttentionParams) p, WideManyShared at,
                          MF_LOCAL(const f32) columns, MF_GLOBAL(f32) out, u32 first_row,
                          bool is_first, bool finishes) {
  const u32 quad = t.lane & 3u;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const u32 r = (t.simd & 3u) * 16u + t.lane / 4u + below * 8u;
    const QueryRow row = query_row(t, p, first_row + r);
    if (row.end == 0u) continue;
    MF_GLOBAL(f32) to = out + (row.token * p.out.token_stride + row.head * p.out.head_stride);
    const f32 keep = MF_SHARED_AT(t, f32, at.split_keep * 4u)[r];
    const f32 add = MF_SHARED_AT(t, f32, at.split_add * 4u)[r];
    f32 factor = 1.0f;
    if (finishes) factor = MF_SHARED_AT(t, f32, at.finish * 4u)[r];
    const bool adds_to = !is_first && keep != 0.0f;
    const u32 first = t.simd / 4u * kWideManyBlocks * 64u + quad * 4u;
    MF_UNROLL
    for (u32 begin = 0u; begin < kWideManyBlocks * 4u; begin += kWideManyReads) {
      F4 fours[kWideManyReads];
      MF_UNROLL
      for (u32 i = 0u; i < kWideManyReads; ++i) {
        const u32 c = first + (begin + i) * 16u;
        fours[i] = no_columns();
        if (adds_to && c < p.v_head_dim) fours[i] = load4(MF_CAST(const f32, to + c));
      }
      MF_UNROLL
      for (u32 i = 0u; i < kWideManyReads; ++i) {
        const u32 c = first + (begin + i) * 16u;
        if (c >= p.v_head_dim) continue;
        MF_UNROLL
        for (u32 e = 0u; e < 4u; ++e) {
          const u32 product = (begin + i) * 2u + e / 2u;
          const f32 own = columns[product * 4u + below * 2u + e % 2u] * wide_factor();
          const f32 value = mf_fma(fours[i].v[e], keep, own * add);
          fours[i].v[e] = finishes ? mf_fma(value, factor, 0.0f) : value;
        }
        store4(to + c, fours[i]);
      }
    }
  }
}

MF_FN void clear_wide_columns(MF_LOCAL(f32) columns) {
  MF_UNROLL
  for (u32 i = 0u; i < kWideManySums; ++i) columns[i] = 0.0f;
}

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
  const u32 first_tile = query_row(t, p, first_row).begin / kWideKeys;
  const u32 last_tile =
      (query_row(t, p, (behind < count ? behind : count) - 1u).end - 1u) / kWideKeys;
  const u32 tiles = p.num_parts * kWideSplitTiles;
  const u32 low = p.first_part * kWideSplitTiles;
  const u32 begin = first_tile > low ? first_tile : low;
  const u32 end = last_tile + 1u < low + tiles ? last_tile + 1u : low + tiles;
  if (begin >= end) return;
  MF_GLOBAL(const u32)
  from = halves + static_cast<u64>(t.group.y * tiles + begin - low) * at.tile_words;
  u32 slot = at.tiles;
  copy_words(t, slot, from, at.tile_words);
  copies_commit(t);
  stage_wide_queries(t, p, q, at, first_row);
  const u32 own_row = (t.simd & 3u) * 16u + t.lane / 4u + t.simd / 4u * 8u;
  const bool leads = (t.lane & 3u) == 0u;
  const QueryRow row = query_row(t, p, first_row + own_row);
  const u64 kept = (static_cast<u64>(row.token) * p.heads + row.head) * 2u;
  PartSum sum = no_sum();
  PartSum all = no_sum();
  if (begin > first_tile && row.end > 0u) {
    all.largest = partials[kept];
    all.total = partials[kept + 1u];
  }
  f32 columns[kWideManySums];
  clear_wide_columns(columns);
  MF_ROLLED
  for (u32 tile = begin; tile < end; ++tile) {
    const bool ends = tile == last_tile || (tile + 1u) % kWideSplitTiles == 0u;
    const bool is_tiled = tile / kWideSplitTiles < static_cast<u32>(kWideTiledSplits);
    const u32 next = slot == at.tiles ? at.tiles + at.tile_words : at.tiles;
    if (tile % kWideSplitTiles == 0u) {
      sum = no_sum();
      clear_wide_columns(columns);
    }
    copies_wait<0>(t);
    barrier(t);
    from = from + at.tile_words;
    if (tile + 1u < end) copy_words(t, next, from, at.tile_words);
    copies_commit(t);
    f32 scores[16];
    score_wide_tile(t, p, at, slot, scores);
    const bool is_second = t.simd >= 4u;
    if (is_second) {
      give_scores<1u>(t, at, scores);
    } else {
      give_scores<0u>(t, at, scores);
    }
    barrier(t);
    const f32 largest = is_tiled ? -mf_infinity() : static_cast<f32>(sum.largest);
    const u32 first_key = tile * kWideKeys;
    const PartSum own = is_second
                            ? weigh_wide_tile<1u>(t, p, at, slot, scores, largest, row, first_key)
                            : weigh_wide_tile<0u>(t, p, at, slot, scores, largest, row, first_key);
    const PartMerge merge = merge_wide_tile(sum, own, is_tiled);
    sum = merge.all;
    if (leads) {
      MF_SHARED_AT(t, f32, at.keep * 4u)[own_row] = merge.keep;
      MF_SHARED_AT(t, f32, at.add * 4u)[own_row] = merge.add;
    }
    if (ends) {
      const PartMerge split = merge_parts(all, sum);
      all = split.all;
      if (leads) {
        MF_SHARED_AT(t, f32, at.split_keep * 4u)[own_row] = split.keep;
        MF_SHARED_AT(t, f32, at.split_add * 4u)[own_row] = split.add;
        if (tile == last_tile && row.end > 0u) {
          MF_SHARED_AT(t, f32, at.finish * 4u)[own_row] = finish_factor(p, all, sinks, row.head);
        }
      }
    }
    barrier(t);
    if (is_tiled) {
      add_wide_tile<true>(t, p, at, slot, columns);
    } else {
      add_wide_tile<false>(t, p, at, slot, columns);
    }
    if (ends) {
      add_wide_split(t, p, at, columns, out, first_row,
                     tile / kWideSplitTiles == first_tile / kWideSplitTiles, tile == last_tile);
    }
    slot = next;
  }
  if (end <= last_tile && leads && row.end > 0u) {
    partials[kept] = all.largest;
    partials[kept + 1u] = all.total;
  }
}

MF_FITS(256, 1)
MF_KERNEL(mma_attention_wide_halves_f16, AttentionParams, MF_READ(0, u64, k_pages),
          MF_WRITE(1, u32, halves)) {
  MF_THREAD;
  bring_wide_keys(t, p, k_pages, halves);
}

MF_FITS(256, 1)
MF_KERNEL(mma_attention_wide_many_f16_r64, AttentionParams, MF_READ(0, f32, q),
          MF_READ(1, u32, halves), MF_READ(2, f32, sinks), MF_WRITE(3, f32, out),
          MF_WRITE(4, f32, partials)) {
  MF_THREAD;
  attend_wide_many(t, p, q, halves, sinks, out, partials);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
