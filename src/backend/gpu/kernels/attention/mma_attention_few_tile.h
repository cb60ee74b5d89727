// Attention of few queries: a group has 16 rows of one kv head, which are the heads of a token,
// then those of the next, and reads keys and values as they lie in their pages. A SIMD group has
// eight keys of a tile in registers, while values are on their way to shared memory. Then it has
// two rows of weights, and 32 columns of the result; each of them more, if a group has fewer than
// eight. Keys and values that older launches wrote are read before the queries are there.
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
/// Weights take the place of queries, if no other tile meets these; so these have as much at least.
template <typename Tile, bool WALKS>
MF_FN FewShared few_shared(MF_PARAMS(AttentionParams) p) {
  const u32 query_words = Tile::key_steps(p) * kTileRowsWords;
  const u32 weight_words = kTileFewRows * kTileKeys;
  FewShared at;
  at.weights = WALKS ? query_words : 0u;
  at.values = WALKS || query_words < weight_words ? at.weights + weight_words : query_words;
  at.scores = at.values + kTileKeys * Tile::value_words(p);
  at.shifts = at.scores + kTileFewRows * kTileScoreWords;
  at.inverses = at.shifts + kTileKeys;
  at.scales = at.inverses + kTileKeys;
  at.query_factors = at.scales + kTileKeys;
  at.keeps = at.query_factors + kTileFewRows;
  at.adds = at.keeps + kTileFewRows;
  return at;
}

/// Where eight keys and their values begin, from a multiple of eight on, so that they lie in one
/// page; where there are none that are needed, in any. Pages that hold whole tiles are looked up
/// once for all.
template <typename Number>
struct EightRows {
  MF_GLOBAL(const Number) keys;
  MF_GLOBAL(const Number) values;
};
template <typename Number>
MF_FN EightRows<Number> rows_at(MF_T t, MF_PARAMS(AttentionParams) p, TokenSequence sequence,
                                u32 position) {
  const u32 number = position / p.page_tokens;
  const u32 within = position - number * p.page_tokens;
  const u32 at = number % sequence.num_pages;
  const EightRows<Number> rows = {
      MF_AT(t, const Number, sequence.k_pages[at]) +
          (within * p.k_page.token_stride + t.group.y * p.k_page.head_stride),
      MF_AT(t, const Number, sequence.v_pages[at]) +
          (within * p.v_page.token_stride + t.group.y * p.v_page.head_stride)};
  return rows;
}
template <typename Number>
MF_FN EightRows<Number> eight_rows(MF_T t, MF_PARAMS(AttentionParams) p, TokenSequence sequence,
                                   EightRows<Number> tile_rows, u32 tile, u32 within, u32 low,
                                   u32 high) {
  if (p.page_tokens % kTileKeys == 0u) {
    const EightRows<Number> rows = {tile_rows.keys + within * p.k_page.token_stride,
                                    tile_rows.values + within * p.v_page.token_stride};
    return rows;
  }
  const bool any = tile + within < high && tile + within + 8u > low;
  return rows_at<Number>(t, p, sequence, any ? tile + within : (high - 1u) / 8u * 8u);
}

/// Starts to read eight keys of a tile, of which [low, high) are needed.
template <typename Tile>
MF_FN void read_keys(MF_T t, MF_PARAMS(AttentionParams) p,
                     MF_LOCAL(KeyRows<typename Tile::Number>) keys,
                     EightRows<typename Tile::Number> rows, u32 first, u32 low, u32 high) {
  const u32 key = first + t.lane / 4u;
  keys->load(t, rows.keys + t.lane / 4u * p.k_page.token_stride, Tile::head_dim(p),
             key >= low && key < high);
}

/// Starts to copy their values to shared memory.
template <typename Tile>
MF_FN void copy_values(MF_T t, MF_PARAMS(AttentionParams) p, MF_SHARED(u32) to,
                       EightRows<typename Tile::Number> rows, u32 first, u32 low, u32 high) {
  typedef typename Tile::Number Number;
  enum : u32 { kBytes = sizeof(Number), kTail = CachedTail<Number>::kWords };
  const u32 codes_end = Tile::value_blocks(p) * 8u * kBytes;
  const u32 pieces = (codes_end + kTail) / 4u;  // of four words
  const u32 own_words = Tile::v_head_dim(p) * kBytes / 4u + kTail;
  const u64 stride = p.v_page.token_stride * kBytes / 4u;
  MF_GLOBAL(const u32) from = MF_CAST(const u32, rows.values);
  MF_UNROLL
  for (u32 begin = 0u; begin < 8u * pieces; begin += 32u) {
    const u32 i = begin + t.lane;
    const u32 row = i / pieces;
    if (row >= 8u) continue;
    const u32 word = (i - row * pieces) * 4u;
    const bool exists = first + row >= low && first + row < high;
    const u32 stored = kTail > 0u && word == codes_end ? p.v_scales / 4u : word;
    copy_async4_if(t, to + (row * Tile::value_words(p) + word), from + (row * stride + stored),
                   exists && word < own_words);
  }
}

/// Starts to read a SIMD group's first eight keys of a tile and all its values.
template <typename Tile, bool WALKS, u32 SIMDS>
MF_FN void read_tile(MF_T t, MF_PARAMS(AttentionParams) p,
                     MF_LOCAL(KeyRows<typename Tile::Number>) keys, TokenSequence sequence,
                     EightRows<typename Tile::Number> tile_rows, u32 tile, u32 low, u32 high) {
  const u32 values = few_shared<Tile, WALKS>(p).values;
  MF_UNROLL
  for (u32 n = 0u; n < kTileKeys / 8u; n += SIMDS) {
    const u32 within = (n + t.simd) * 8u;
    const EightRows<typename Tile::Number> rows =
        eight_rows(t, p, sequence, tile_rows, tile, within, low, high);
    if (n == 0u) read_keys<Tile>(t, p, keys, rows, tile + within, low, high);
    simd_barrier(t);  // so that keys, which are needed first, are asked for first
    copy_values<Tile>(t, p, MF_SHARED_AT(t, u32, (values + within * Tile::value_words(p)) * 4u),
                      rows, tile + within, low, high);
  }
  copies_commit(t);
}

/// Eight keys times queries, whose rows in halves a lane has from x on.
template <typename Tile, typename Stored>
MF_FN void multiply_keys(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(const KeyRows<Stored>) keys,
                         u32 exponent, MF_SHARED(u32) x, MF_LOCAL(TileDots<1u>) dots) {
  const f32 into = into_halves(exponent);
  MF_UNROLL
  for (u32 s = 0u; s < kTileSteps; ++s) {
    if (s >= Tile::key_steps(p)) continue;
    const W4 k = split_four(scaled(keys->numbers(s), into));
    dots->add(t, load_rows(x + s * kTileRowsWords), &k);
  }
}
/// Numbers of 16 bits have one half.
template <typename Tile>
MF_FN void multiply_keys(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(const KeyRows<u16>) keys,
                         u32 exponent, MF_SHARED(u32) x, MF_LOCAL(TileDots<1u>) dots) {
  const u32 both = half_factors(exponent);
  const PairFactors factors = pair_factors(both, both);
  const f32 into = into_halves(exponent);
  const bool is_tiny = simd_ballot(t, !has_half_factors(exponent)) != 0u;
  MF_UNROLL
  for (u32 s = 0u; s < kTileSteps; ++s) {
    if (s >= Tile::key_steps(p)) continue;
    const W2 held = keys->held[s].held;
    W2 larger = {{scaled_pair(held.v[0], factors), scaled_pair(held.v[1], factors)}};
    if (is_tiny) larger = larger_halves(scaled(keys->numbers(s), into));
    const W4 k = {{larger.v[0], larger.v[1], 0u, 0u}};
    dots->add_larger(t, load_rows(x + s * kTileRowsWords), &k);
  }
}

/// Scores of the tile's keys from `within` on, without their values' exponents.
template <typename Tile, bool WALKS>
MF_FN void score_eight(MF_T t, MF_PARAMS(AttentionParams) p, u32 within,
                       MF_LOCAL(KeyRows<typename Tile::Number>) keys) {
  const FewShared at = few_shared<Tile, WALKS>(p);
  const u32 exponent = key_exponent(t, keys);
  const f32 out_of = out_of_halves(exponent);
  MF_SHARED(u32) x = MF_SHARED_AT(t, u32, t.lane * 16u);
  TileDots<1u> dots;
  dots.clear();
  multiply_keys<Tile>(t, p, keys, exponent, x, &dots);
  const u32 g = t.lane / 4u;
  const u32 quad = t.lane & 3u;
  const f32 factors[2] = {simd_shuffle(t, out_of, quad * 8u),
                          simd_shuffle(t, out_of, quad * 8u + 4u)};
  MF_SHARED(f32) query_factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
  MF_SHARED(f32) scores = MF_SHARED_AT(t, f32, at.scores * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 r = g + i / 2u * 8u;
    scores[r * kTileScoreWords + within + quad * 2u + i % 2u] =
        dots.dot(0u, i) * query_factors[r] * factors[i % 2u];
  }
}

/// Where values have one half, what they are multiplied by as half_factors(); none, which is not
/// one, where it does not fit.
MF_FN f32 half_scale(u32 exponent) {
  return as_float(has_half_factors(exponent) ? half_factors(exponent) : 0u);
}

/// The exponent of a value in shared memory, a quarter of whose pieces a lane has.
template <typename Stored>
MF_FN u32 value_exponent(MF_T t, MF_SHARED(u32) row, u32 pieces, Stored) {
  u32 bits = 0u;
  MF_ROLLED
  for (u32 begin = t.lane & 3u; begin < pieces; begin += 32u) {
    MF_UNROLL
    for (u32 u = begin; u < begin + 32u; u += 4u) {
      if (u >= pieces) continue;
      CachedFour<Stored> four;
      four.take(row, u, pieces);
      bits = largest_bits(four.numbers(), bits);
    }
  }
  return block_exponent(lanes_max(t, lanes_max(t, bits, 1u), 2u));
}
MF_FN u32 value_exponent(MF_T t, MF_SHARED(u32) row, u32 pieces, u16) {
  u32 largest = 0u;
  MF_UNROLL
  for (u32 u = 0u; u < kTileBlocks * 8u; u += 8u) {
    if (u >= pieces) continue;
    const W4 words = load4(row + (u + (t.lane & 3u) * 2u) * 2u);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) largest = largest_pair(words.v[i], largest);
  }
  return quad_exponent(t, largest);
}

/// The factors of the eight values from `within` on, once they are there. A row with NaN or
/// infinity becomes zeros, so that queries that do not see it stay clean. A lane has a quarter of a
/// row.
template <typename Tile, bool WALKS>
MF_FN void measure_values(MF_T t, MF_PARAMS(AttentionParams) p, u32 within) {
  const FewShared at = few_shared<Tile, WALKS>(p);
  const u32 key = within + t.lane / 4u;
  const u32 pieces = Tile::value_blocks(p) * 8u;
  enum : u32 { kWords = sizeof(typename Tile::Number) };  // of a piece
  MF_SHARED(u32) row = MF_SHARED_AT(t, u32, (at.values + key * Tile::value_words(p)) * 4u);
  const typename Tile::Number none = 0;
  const u32 exponent = value_exponent(t, row, pieces, none);
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
  MF_SHARED_AT(t, f32, at.scales * 4u)
  [key] =
      Halves<typename Tile::Number>::kCount == 1u ? half_scale(exponent) : into_halves(exponent);
}

/// A lane's weights of row r, half a SIMD group each, as lanes hold the first factor.
template <typename Tile, bool WALKS>
MF_FN void store_weights(MF_T t, MF_PARAMS(AttentionParams) p, u32 r, W4 weights) {
  const u32 at = few_shared<Tile, WALKS>(p).weights + t.lane / 4u % 4u * 256u;
  store_piece(MF_SHARED_AT(t, u32, at * 4u), r, t.lane & 3u, weights);
}

/// Weights in halves of row r of the group, half a SIMD group each.
template <typename Tile, bool WALKS>
MF_FN PartSum weigh_tile(MF_T t, MF_PARAMS(AttentionParams) p, QueryRow row, u32 r, u32 tile) {
  const FewShared at = few_shared<Tile, WALKS>(p);
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
  store_weights<Tile, WALKS>(t, p, r, split_four(weights));
  part = part + simd_shuffle_xor(t, part, 4u);
  part = part + simd_shuffle_xor(t, part, 8u);
  part = part + simd_shuffle_xor(t, part, 1u);
  part = part + simd_shuffle_xor(t, part, 2u);
  const PartSum sum = {largest, part};
  return sum;
}

/// Sixteen keys' values of a block of 32 columns, as value_halves() has them, in the halves that
/// they have, and what weights do with them.
template <typename Stored>
struct ValueBlock {
  W4 halves[4];

  MF_FN_MEMBER void take(MF_T t, MF_SHARED(u32) values, u32 words, u32 block, u32 pieces,
                         MF_SHARED(f32) scales, MF_SHARED(f32), u32 k) {
    F4 rows[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 key = k + value_key(t.lane & 3u, i);
      CachedFour<Stored> four;
      four.take(values + key * words, block * 8u + t.lane / 4u, pieces);
      rows[i] = scaled(four.numbers(), scales[key]);
    }
    MF_UNROLL
    for (u32 j = 0u; j < 4u; ++j) halves[j] = value_halves(rows, j);
  }
  MF_FN_MEMBER void add(MF_T t, MF_LOCAL(f32) sums, TileRows weights) const {
    add_weighted(t, sums, weights, halves);
  }
};
template <>
struct ValueBlock<u16> {
  W4 larger[2];

  MF_FN_MEMBER void take(MF_T t, MF_SHARED(u32) values, u32 words, u32 block, u32,
                         MF_SHARED(f32) scales, MF_SHARED(f32) inverses, u32 k) {
    W2 rows[4];
    u32 both[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 key = k + value_key(t.lane & 3u, i);
      rows[i] = load2(values + (key * words + (block * 8u + t.lane / 4u) * 2u));
      both[i] = as_bits(scales[key]);
    }
    const PairFactors upper = pair_factors(both[0], both[1]);
    const PairFactors lower = pair_factors(both[2], both[3]);
    MF_UNROLL
    for (u32 j = 0u; j < 4u; ++j) {
      const u32 w = j / 2u;
      const u32 first = j % 2u == 0u ? lower_halves(rows[0].v[w], rows[1].v[w])
                                     : upper_halves(rows[0].v[w], rows[1].v[w]);
      const u32 second = j % 2u == 0u ? lower_halves(rows[2].v[w], rows[3].v[w])
                                      : upper_halves(rows[2].v[w], rows[3].v[w]);
      larger[w].v[j % 2u * 2u] = scaled_pair(first, upper);
      larger[w].v[j % 2u * 2u + 1u] = scaled_pair(second, lower);
    }
    const bool is_tiny = both[0] == 0u || both[1] == 0u || both[2] == 0u || both[3] == 0u;
    if (simd_ballot(t, is_tiny) != 0u) take_tiny(t, rows, inverses, k);
  }
  /// The same by factors in f32, 2^14 times what takes values' exponents back.
  MF_FN_MEMBER void take_tiny(MF_T t, MF_LOCAL(const W2) rows, MF_SHARED(f32) inverses, u32 k) {
    F4 numbers[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const CachedFour<u16> four = {rows[i]};
      numbers[i] =
          scaled(four.numbers(), inverses[k + value_key(t.lane & 3u, i)] * weight_factor());
    }
    MF_UNROLL
    for (u32 j = 0u; j < 4u; ++j) {
      const W4 halves = value_halves(numbers, j);
      larger[j / 2u].v[j % 2u * 2u] = halves.v[0];
      larger[j / 2u].v[j % 2u * 2u + 1u] = halves.v[1];
    }
  }
  MF_FN_MEMBER void add(MF_T t, MF_LOCAL(f32) sums, TileRows weights) const {
    add_weighted_larger(t, sums, weights, larger);
  }
};

/// sums[4 j + i] of a block of 32 columns: weights times values.
template <typename Tile, bool WALKS>
MF_FN void weigh_values(MF_T t, MF_PARAMS(AttentionParams) p, u32 block, MF_LOCAL(f32) sums) {
  const FewShared at = few_shared<Tile, WALKS>(p);
  MF_SHARED(u32) values = MF_SHARED_AT(t, u32, at.values * 4u);
  MF_SHARED(f32) scales = MF_SHARED_AT(t, f32, at.scales * 4u);
  MF_SHARED(f32) inverses = MF_SHARED_AT(t, f32, at.inverses * 4u);
  MF_SHARED(u32) x = MF_SHARED_AT(t, u32, at.weights * 4u) + t.lane * 4u;
  MF_UNROLL
  for (u32 i = 0u; i < 16u; ++i) sums[i] = 0.0f;
  MF_ROLLED
  for (u32 k = 0u; k < kTileKeys; k += 16u) {
    ValueBlock<typename Tile::Number> sixteen;
    sixteen.take(t, values, Tile::value_words(p), block, Tile::value_blocks(p) * 8u, scales,
                 inverses, k);
    sixteen.add(t, sums, load_rows(x + k * 16u));
  }
}

/// Scores of a tile whose first keys of each SIMD group and whose values have been asked for, and
/// the factors of its values.
template <typename Tile, bool WALKS, u32 SIMDS>
MF_FN void score_tile(MF_T t, MF_PARAMS(AttentionParams) p,
                      MF_LOCAL(KeyRows<typename Tile::Number>) keys, TokenSequence sequence,
                      EightRows<typename Tile::Number> tile_rows, u32 tile, u32 low, u32 high) {
  typedef typename Tile::Number Number;
  MF_UNROLL
  for (u32 n = 0u; n < kTileKeys / 8u; n += SIMDS) {
    KeyRows<Number> next;
    const u32 after = (n + SIMDS + t.simd) * 8u;
    if (n + SIMDS < kTileKeys / 8u) {
      read_keys<Tile>(t, p, &next, eight_rows(t, p, sequence, tile_rows, tile, after, low, high),
                      tile + after, low, high);
    }
    score_eight<Tile, WALKS>(t, p, (n + t.simd) * 8u, keys);
    if (n + SIMDS < kTileKeys / 8u) *keys = next;
  }
  copies_wait<0>(t);
  simd_barrier(t);
  MF_ROLLED
  for (u32 n = t.simd; n < kTileKeys / 8u; n += SIMDS) {
    measure_values<Tile, WALKS>(t, p, n * 8u);
  }
}

/// The positions that any row of a group sees, and its first tile.
struct FewRange {
  u32 begin;
  u32 end;
  u32 tile;
};
template <bool WALKS>
MF_FN FewRange few_range(MF_T t, MF_PARAMS(AttentionParams) p, GroupRows group) {
  const u32 behind = group.first + kTileFewRows;
  const u32 last = (behind < group.end ? behind : group.end) - 1u;
  FewRange range;
  range.begin = query_row(t, p, group, group.first).begin;
  range.end = query_row(t, p, group, last).end;
  const u32 seen = WALKS || p.lengths != 0u ? range.begin / kTileKeys : 0u;
  range.tile = (seen + (WALKS ? 0u : p.first_part + t.group.z)) * kTileKeys;
  return range;
}

/// The first tile's keys and values, and the queries in halves.
template <typename Tile, bool WALKS, u32 SIMDS>
MF_FN void begin_few(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q, GroupRows group,
                     FewRange range, EightRows<typename Tile::Number> tile_rows,
                     MF_LOCAL(KeyRows<typename Tile::Number>) keys) {
  const u32 old = group.sequence.position < p.new_from ? group.sequence.position : p.new_from;
  const bool waits = range.tile + kTileKeys <= old;
  if (!waits) await_inputs(t);
  read_tile<Tile, WALKS, SIMDS>(t, p, keys, group.sequence, tile_rows, range.tile, range.begin,
                                range.end);
  if (waits) await_inputs(t);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, (few_shared<Tile, WALKS>(p).query_factors) * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < kTileFewRows; i += SIMDS) {
    const u32 r = t.simd + i;
    const f32 factor = stage_query<Tile>(t, p, q, query_row(t, p, group, group.first + r), r,
                                         MF_SHARED_AT(t, u32, 0u));
    if (t.lane == 0u) factors[r] = factor;
  }
  barrier(t);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
