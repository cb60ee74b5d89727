// Attention of few queries: a group has 16 rows of one kv head, which are the heads of a token,
// then those of the next, and reads keys and values as they lie in their pages. Each SIMD group has
// eight keys of a tile in registers, while values are on their way to shared memory, and 32 columns
// of the result. Keys and values that older launches wrote are read before the queries are there.
#pragma once

#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_tiles.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/matmul/block_exponent.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where things lie in shared memory, in words.
struct FewShared {
  u32 values;
  u32 scores;
  u32 weights;
  u32 shifts;
  u32 inverses;
  u32 scales;
  u32 query_factors;
  u32 keeps;
  u32 adds;
};
template <typename Tile>
MF_FN FewShared few_shared(MF_PARAMS(AttentionParams) p) {
  FewShared at;
  at.values = Tile::key_steps(p) * kTileFewRows * 16u;
  at.scores = at.values + kTileKeys * Tile::value_words(p);
  at.weights = at.scores + kTileFewRows * kTileScoreWords;
  at.shifts = at.weights + kTileFewRows * kTileKeys;
  at.inverses = at.shifts + kTileKeys;
  at.scales = at.inverses + kTileKeys;
  at.query_factors = at.scales + kTileKeys;
  at.keeps = at.query_factors + kTileFewRows;
  at.adds = at.keeps + kTileFewRows;
  return at;
}

/// Starts to read a SIMD group's keys and values of a tile, of which [low, high) are needed.
template <typename Tile>
MF_FN void read_tile(MF_T t, MF_PARAMS(AttentionParams) p,
                     MF_LOCAL(KeyRows<typename Tile::Number>) keys, TokenSequence sequence,
                     u32 tile, u32 low, u32 high) {
  typedef typename Tile::Number Number;
  enum : u32 {
    kBytes = sizeof(Number),
    kTail = CachedTail<Number>::kWords,
    kWordsMax = kTileBlocks * 8u * kBytes + kTail,
  };
  const u32 first = tile + t.simd * 8u;
  // Eight positions from a multiple of eight lie in one page; where there are none, in any.
  const bool any = first < high && first + 8u > low;
  const u32 page_of = any ? first : (high - 1u) / 8u * 8u;
  const u32 number = page_of / p.page_tokens;
  const u32 within = page_of - number * p.page_tokens;
  const u32 at = number % sequence.num_pages;
  const u64 k_page = sequence.k_pages[at];
  const u64 v_page = sequence.v_pages[at];
  const u32 key = first + t.lane / 4u;
  keys->load(t,
             MF_AT(t, const Number, k_page) + ((within + t.lane / 4u) * p.k_page.token_stride +
                                               t.group.y * p.k_page.head_stride),
             Tile::head_dim(p), key >= low && key < high);
  simd_barrier(t);  // so that keys, which are needed first, are asked for first
  MF_SHARED(u32)
  to =
      MF_SHARED_AT(t, u32, (few_shared<Tile>(p).values + t.simd * 8u * Tile::value_words(p)) * 4u) +
      t.lane * 4u;
  MF_GLOBAL(const Number)
  row = MF_AT(t, const Number, v_page) +
        (within * p.v_page.token_stride + t.group.y * p.v_page.head_stride);
  MF_GLOBAL(const u32) from = MF_CAST(const u32, row) + t.lane * 4u;
  const u32 codes_end = Tile::value_blocks(p) * 8u;
  if (kTail > 0u && t.lane * 4u == codes_end) from = from + (p.v_scales / 4u - codes_end);
  const u32 row_words = Tile::value_blocks(p) * 8u * kBytes + kTail;
  const u32 own_words = Tile::v_head_dim(p) * kBytes / 4u + kTail;
  MF_UNROLL
  for (u32 i = 0u; i < 8u; ++i) {
    const bool exists = first + i >= low && first + i < high;
    MF_UNROLL
    for (u32 c = 0u; c < kWordsMax; c += 128u) {
      if (c + t.lane * 4u >= row_words) continue;
      copy_async4_if(t, to + c, from + c, exists && c + t.lane * 4u < own_words);
    }
    to = to + Tile::value_words(p);
    from = from + p.v_page.token_stride * kBytes / 4u;
  }
  copies_commit(t);
}

/// Scores of a SIMD group's eight keys, without their values' exponents.
template <typename Tile>
MF_FN void score_eight(MF_T t, MF_PARAMS(AttentionParams) p,
                       MF_LOCAL(KeyRows<typename Tile::Number>) keys) {
  const FewShared at = few_shared<Tile>(p);
  const u32 exponent = key_exponent<typename Tile::Number>(t, keys);
  const f32 into = into_halves(exponent);
  const f32 out_of = out_of_halves(exponent);
  MF_SHARED(u32) x = MF_SHARED_AT(t, u32, t.lane * 16u);
  TileDots<1u> dots;
  dots.clear();
  MF_UNROLL
  for (u32 s = 0u; s < kTileSteps; ++s) {
    if (s >= Tile::key_steps(p)) continue;
    const W4 k = split_four(scaled(keys->numbers(s), into));
    dots.add(t, load_rows(x + s * kTileRowsWords), &k);
  }
  const u32 g = t.lane / 4u;
  const u32 quad = t.lane & 3u;
  const f32 factors[2] = {simd_shuffle(t, out_of, quad * 8u),
                          simd_shuffle(t, out_of, quad * 8u + 4u)};
  MF_SHARED(f32) query_factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
  MF_SHARED(f32) scores = MF_SHARED_AT(t, f32, at.scores * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 r = g + i / 2u * 8u;
    scores[r * kTileScoreWords + t.simd * 8u + quad * 2u + i % 2u] =
        dots.dot(0u, i) * query_factors[r] * factors[i % 2u];
  }
}

/// The factors of a SIMD group's eight values, once they are there. A row with NaN or infinity
/// becomes zeros, so that queries that do not see it stay clean. A lane has a quarter of a row.
template <typename Tile>
MF_FN void measure_values(MF_T t, MF_PARAMS(AttentionParams) p) {
  const FewShared at = few_shared<Tile>(p);
  const u32 key = t.simd * 8u + t.lane / 4u;
  const u32 pieces = Tile::value_blocks(p) * 8u;
  enum : u32 { kWords = sizeof(typename Tile::Number) };  // of a piece
  MF_SHARED(u32) row = MF_SHARED_AT(t, u32, (at.values + key * Tile::value_words(p)) * 4u);
  u32 bits = 0u;
  MF_ROLLED
  for (u32 begin = t.lane & 3u; begin < pieces; begin += 32u) {
    MF_UNROLL
    for (u32 u = begin; u < begin + 32u; u += 4u) {
      if (u >= pieces) continue;
      CachedFour<typename Tile::Number> four;
      four.take(row, u, pieces);
      bits = largest_bits(four.numbers(), bits);
    }
  }
  const u32 exponent = block_exponent(lanes_max(t, lanes_max(t, bits, 1u), 2u));
  enum : u32 { kTail = CachedTail<typename Tile::Number>::kWords };
  if (kTail > 0u) simd_barrier(t);  // four lanes have read the same scales
  if (exponent == kNotFinite) {
    for (u32 u = t.lane & 3u; u < pieces; u += 4u) {
      for (u32 w = 0u; w < kWords; ++w) row[u * kWords + w] = 0u;
    }
    if (kTail > 0u) row[pieces + (t.lane & 3u)] = 0u;
  }
  if ((t.lane & 3u) != 0u) return;
  MF_SHARED_AT(t, f32, at.shifts * 4u)[key] = value_shift(exponent);
  MF_SHARED_AT(t, f32, at.inverses * 4u)[key] = value_inverse(exponent);
  MF_SHARED_AT(t, f32, at.scales * 4u)[key] = into_halves(exponent);
}

/// Weights in halves of two rows of a SIMD group, as lanes hold the first factor.
template <typename Tile>
MF_FN PartSum weigh_tile(MF_T t, MF_PARAMS(AttentionParams) p, QueryRow row, u32 tile) {
  const FewShared at = few_shared<Tile>(p);
  const u32 r = t.simd * 2u + t.lane / 16u;
  const u32 first = t.lane / 4u % 4u * 16u;
  const u32 quad = t.lane & 3u;
  MF_SHARED(f32) scores = MF_SHARED_AT(t, f32, at.scores * 4u) + r * kTileScoreWords;
  MF_SHARED(f32) shifts = MF_SHARED_AT(t, f32, at.shifts * 4u);
  MF_SHARED(f32) inverses = MF_SHARED_AT(t, f32, at.inverses * 4u);
  F4 own;
  F4 back;
  f32 largest = -mf_infinity();
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 key = first + value_key(quad, i);
    const bool seen = tile + key >= row.begin && tile + key < row.end;
    own.v[i] = seen ? scores[key] + shifts[key] : -mf_infinity();
    back.v[i] = inverses[key];
    largest = mf_max(largest, own.v[i]);
  }
  MF_UNROLL
  for (u32 mask = 8u; mask > 0u; mask /= 2u) {
    largest = mf_max(largest, simd_shuffle_xor(t, largest, mask));
  }
  const f32 measure = measure_of(largest);
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) own.v[i] = own.v[i] - measure;
  f32 part;
  const F4 weights = tile_weights<false>(own, back, &part);
  store_piece(MF_SHARED_AT(t, u32, at.weights * 4u) + first * 16u, r, quad, split_four(weights));
  part = part + simd_shuffle_xor(t, part, 4u);
  part = part + simd_shuffle_xor(t, part, 8u);
  part = part + simd_shuffle_xor(t, part, 1u);
  part = part + simd_shuffle_xor(t, part, 2u);
  const PartSum sum = {largest, part};
  return sum;
}

/// sums[4 j + i] of a SIMD group's 32 columns: weights times values.
template <typename Tile>
MF_FN void weigh_values(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(f32) sums) {
  const FewShared at = few_shared<Tile>(p);
  const u32 quad = t.lane & 3u;
  MF_SHARED(u32) values = MF_SHARED_AT(t, u32, at.values * 4u);
  MF_SHARED(f32) scales = MF_SHARED_AT(t, f32, at.scales * 4u);
  MF_SHARED(u32) x = MF_SHARED_AT(t, u32, at.weights * 4u) + t.lane * 4u;
  MF_UNROLL
  for (u32 i = 0u; i < 16u; ++i) sums[i] = 0.0f;
  MF_ROLLED
  for (u32 k = 0u; k < kTileKeys; k += 16u) {
    F4 rows[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 key = k + value_key(quad, i);
      CachedFour<typename Tile::Number> four;
      four.take(values + key * Tile::value_words(p), t.simd * 8u + t.lane / 4u,
                Tile::value_blocks(p) * 8u);
      rows[i] = scaled(four.numbers(), scales[key]);
    }
    W4 halves[4];
    MF_UNROLL
    for (u32 j = 0u; j < 4u; ++j) halves[j] = value_halves(rows, j);
    add_weighted(t, sums, load_rows(x + k * 16u), halves);
  }
}

/// A SIMD group's part of the group's rows: two softmaxes, half a SIMD group each, and 32 columns
/// of all.
struct FewRows {
  u32 own;  // of the group's rows
  QueryRow row;
  PartSum sum;
  f32 columns[16];
};

/// Takes up a tile whose keys and values have been asked for.
template <typename Tile, bool WALKS>
MF_FN void attend_tile_of_few(MF_T t, MF_PARAMS(AttentionParams) p,
                              MF_LOCAL(KeyRows<typename Tile::Number>) keys, u32 tile,
                              MF_LOCAL(FewRows) rows) {
  const FewShared at = few_shared<Tile>(p);
  MF_SHARED(f32) keeps = MF_SHARED_AT(t, f32, at.keeps * 4u);
  MF_SHARED(f32) adds = MF_SHARED_AT(t, f32, at.adds * 4u);
  score_eight<Tile>(t, p, keys);
  copies_wait<0>(t);
  simd_barrier(t);
  measure_values<Tile>(t, p);
  barrier(t);
  const PartSum sum = weigh_tile<Tile>(t, p, rows->row, tile);
  if (WALKS) {
    const PartMerge merge = merge_parts(rows->sum, sum);
    rows->sum = merge.all;
    if (t.lane % 16u == 0u) {
      keeps[rows->own] = merge.keep;
      adds[rows->own] = merge.add;
    }
  } else {
    rows->sum = sum;
  }
  barrier(t);
  if (t.simd >= Tile::value_blocks(p)) return;
  f32 sums[16];
  weigh_values<Tile>(t, p, sums);
  MF_UNROLL
  for (u32 i = 0u; i < 16u; ++i) {
    const u32 r = t.lane / 4u + i / 2u % 2u * 8u;
    rows->columns[i] = WALKS ? mf_fma(rows->columns[i], keeps[r], sums[i] * adds[r]) : sums[i];
  }
}

/// Writes the rows: finished, or as a part.
template <typename Tile, bool WALKS>
MF_FN void leave_few(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) sinks,
                     MF_GLOBAL(const f32) gate, MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials,
                     GroupRows group, MF_LOCAL(FewRows) rows) {
  const QueryRow row = rows->row;
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, few_shared<Tile>(p).query_factors * 4u);
  if (t.lane % 16u == 0u && row.end > 0u) {
    if (WALKS) {
      factors[rows->own] = finish_factor(p, rows->sum, sinks, row.head);
    } else {
      MF_GLOBAL(f32)
      to = partials + partial_sums(p, partial_index(p, row.token, row.head, t.group.z));
      to[0] = rows->sum.largest;
      to[1] = rows->sum.total;
    }
  }
  if (WALKS) barrier(t);
  if (t.simd >= Tile::value_blocks(p)) return;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const u32 r = t.lane / 4u + below * 8u;
    const QueryRow own = query_row(t, p, group, group.first + r);
    if (own.end == 0u) continue;
    LaneColumns c = lane_columns(rows->columns, below);
    MF_GLOBAL(f32) to = out;
    if (WALKS) {
      finish_lane_columns(t, p, &c, factors[r], gates_of(p, gate, own.token, own.head), t.simd);
      to = out + (own.token * p.out.token_stride + own.head * p.out.head_stride);
    } else {
      to = partials + partial_columns(p, partial_index(p, own.token, own.head, t.group.z));
    }
    store_lane_columns(t, to, t.simd, Tile::v_head_dim(p), c);
  }
}

/// Group x: 16 rows; y: a kv head; z: a tile, which is kept for itself, unless a group WALKS all.
template <typename Tile, bool WALKS>
MF_FN void attend_few(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                      MF_GLOBAL(const u64) k_pages, MF_GLOBAL(const u64) v_pages,
                      MF_GLOBAL(const f32) sinks, MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials,
                      MF_GLOBAL(const f32) gate) {
  MF_SHARED(f32) query_factors = MF_SHARED_AT(t, f32, few_shared<Tile>(p).query_factors * 4u);
  const GroupRows group = group_rows(t, p, k_pages, v_pages, t.group.x, kTileFewRows);
  FewRows rows;
  rows.own = t.simd * 2u + t.lane / 16u;
  rows.row = query_row(t, p, group, group.first + rows.own);
  rows.sum = no_sum();
  MF_UNROLL
  for (u32 i = 0u; i < 16u; ++i) rows.columns[i] = 0.0f;
  const u32 behind = group.first + kTileFewRows;
  const u32 last = (behind < group.end ? behind : group.end) - 1u;
  const u32 begin = query_row(t, p, group, group.first).begin;
  const u32 end = query_row(t, p, group, last).end;
  const bool is_one_of_several = p.lengths != 0u;
  const u32 first_part = WALKS || is_one_of_several ? begin / kTileKeys : p.first_part;
  u32 tile = (WALKS ? first_part : first_part + t.group.z) * kTileKeys;
  if (!WALKS && is_one_of_several && tile >= end) {  // a part that longer sequences have
    await_inputs(t);
    leave_no_part(t, p, partials, rows.row, t.lane % 16u == 0u);
    return;
  }
  const u32 old = group.sequence.position < p.new_from ? group.sequence.position : p.new_from;
  const bool waits = tile + kTileKeys <= old;
  if (!waits) await_inputs(t);
  KeyRows<typename Tile::Number> keys;
  read_tile<Tile>(t, p, &keys, group.sequence, tile, begin, end);
  if (waits) await_inputs(t);
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    const u32 r = t.simd + i * 8u;
    const f32 factor = stage_query<Tile>(t, p, q, query_row(t, p, group, group.first + r), r,
                                         MF_SHARED_AT(t, u32, 0u));
    if (t.lane == 0u) query_factors[r] = factor;
  }
  MF_ROLLED
  for (bool more = true; more;) {
    barrier(t);
    attend_tile_of_few<Tile, WALKS>(t, p, &keys, tile, &rows);
    tile += kTileKeys;
    more = WALKS && tile < end;
    if (!more) continue;
    barrier(t);
    read_tile<Tile>(t, p, &keys, group.sequence, tile, begin, end);
  }
  leave_few<Tile, WALKS>(t, p, sinks, gate, out, partials, group, &rows);
}

#define MF_ATTENTION_FEW(name, TILE, WALKS, FITS)                                     \
  MF_FITS(256, FITS)                                                                  \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_CONST(1, u64, k_pages),     \
            MF_CONST(2, u64, v_pages), MF_READ(3, f32, sinks), MF_WRITE(4, f32, out), \
            MF_WRITE(5, f32, partials), MF_READ(6, f32, gate)) {                      \
    MF_THREAD_EARLY;                                                                  \
    attend_few<TILE, WALKS>(t, p, q, k_pages, v_pages, sinks, out, partials, gate);   \
  }
MF_ATTENTION_FEW(mma_attention_few, AnyTile<f32>, true, 1)
MF_ATTENTION_FEW(mma_attention_few_parts, AnyTile<f32>, false, 2)
MF_ATTENTION_FEW(mma_attention_few_d256, FullTile<f32>, true, 1)
MF_ATTENTION_FEW(mma_attention_few_parts_d256, FullTile<f32>, false, 2)
MF_ATTENTION_FEW(mma_attention_few_f16, AnyTile<u16>, true, 1)
MF_ATTENTION_FEW(mma_attention_few_parts_f16, AnyTile<u16>, false, 2)
MF_ATTENTION_FEW(mma_attention_few_f16_d256, FullTile<u16>, true, 1)
MF_ATTENTION_FEW(mma_attention_few_parts_f16_d256, FullTile<u16>, false, 2)
MF_ATTENTION_FEW(mma_attention_few_q8, AnyTile<u8>, true, 1)
MF_ATTENTION_FEW(mma_attention_few_parts_q8, AnyTile<u8>, false, 2)
MF_ATTENTION_FEW(mma_attention_few_q8_d256, FullTile<u8>, true, 1)
MF_ATTENTION_FEW(mma_attention_few_parts_q8_d256, FullTile<u8>, false, 2)
#undef MF_ATTENTION_FEW

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
