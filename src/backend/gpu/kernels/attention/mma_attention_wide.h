// Causal attention on matrix units for rows of up to 576 columns of keys and 512 of values. A group
// has ROWS rows of one kv head and takes keys in tiles of 32, which add to the sums of the split so
// far; splits of 256 are parts. Tiles of the first splits are parts themselves, which are merged to
// the split, and so may have groups of their own (mma_attention_wide_few.h). Otherwise numbers are
// as in mma_attention_tiles.h.
#pragma once

#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/mma_attention_tiles.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/row_stage.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Scale of sums whose weights and values were multiplied by 2^14 each.
MF_FN f32 wide_factor() { return as_float((127u - 28u) << 23u); }

/// Where a score is: keys k, k + 4, k + 8 and k + 12 of 16 side by side, as multiply_wide() reads
/// their weights.
MF_FN u32 wide_score_at(u32 row, u32 key) {
  return row * kWideScoreWords + key / 16u * 16u + key % 4u * 4u + key % 16u / 4u;
}

/// A lane's products of 16 rows, of which it has one from `first` on and one 8 further, with those
/// of 8 others from `second` on, over the first or the other half of the columns. Products with low
/// halves are summed apart; FIRST and SECOND are how many halves the rows have.
template <u32 FIRST, u32 SECOND>
MF_FN void multiply_wide_rows(MF_T t, MF_PARAMS(AttentionParams) p, u32 half, MF_SHARED(u32) first,
                              MF_SHARED(u32) second, MF_LOCAL(f32) dots) {
  MF_SHARED(u32) below = first + 8u * p.key_words;
  f32 high[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  f32 left[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  f32 right[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  const u32 middle = (p.head_dim / 2u + 31u) / 32u * 32u;
  const u32 end = half == 0u ? middle : wide_columns(p.head_dim);
  // Two steps at once: few enough instructions and registers, and reads run ahead of products.
  MF_ROLLED
  for (u32 begin = half == 0u ? 0u : middle; begin < end; begin += 32u) {
    MF_UNROLL
    for (u32 step = 0u; step < 32u; step += 16u) {
      const W4 x = load4(first + (begin + step));
      const W4 y = load4(below + (begin + step));
      const W4 z = load4(second + (begin + step));
      matrix_multiply_add_f16(t, high, x.v[0], y.v[0], x.v[1], y.v[1], z.v[0], z.v[1]);
      if (FIRST == 2u) {
        matrix_multiply_add_f16(t, left, x.v[2], y.v[2], x.v[3], y.v[3], z.v[0], z.v[1]);
      }
      if (SECOND == 2u) {
        matrix_multiply_add_f16(t, right, x.v[0], y.v[0], x.v[1], y.v[1], z.v[2], z.v[3]);
      }
    }
  }
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) dots[i] = high[i] + (left[i] + right[i]);
}

/// Scores of a tile in two parts, of the first columns and of the others. A SIMD group has 16 rows,
/// 8 keys and a half of the columns. Keys are in HALVES.
template <u32 ROWS, u32 SIMDS, u32 HALVES>
MF_FN void score_wide(MF_T t, MF_PARAMS(AttentionParams) p) {
  enum : u32 { kRowTiles = ROWS / 16u, kKeyTiles = kWideKeys / 8u };
  static_assert(SIMDS >= 2u * kRowTiles * kKeyTiles, "every key and half has a SIMD group");
  const u32 key_tile = t.simd / kRowTiles % kKeyTiles;
  const u32 half = t.simd / (kRowTiles * kKeyTiles);
  if (half >= 2u) return;
  const WideShared at = wide_shared<ROWS>(p);
  const u32 row = t.simd % kRowTiles * 16u + t.lane / 4u;
  const u32 own = wide_piece(t.lane / 4u, t.lane & 3u) * 4u;
  MF_SHARED(u32) queries = MF_SHARED_AT(t, u32, 0u) + (row * p.key_words + own);
  MF_SHARED(u32)
  keys = MF_SHARED_AT(t, u32, at.staged * 4u) + ((key_tile * 8u + t.lane / 4u) * p.key_words + own);
  f32 dots[4];
  multiply_wide_rows<2u, HALVES>(t, p, half, queries, keys, dots);
  MF_SHARED(f32) key_factors = MF_SHARED_AT(t, f32, at.key_factors * 4u);
  MF_SHARED(f32) query_factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
  MF_SHARED(f32)
  scores = MF_SHARED_AT(t, f32, (at.scores + half * ROWS * kWideScoreWords) * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 key = key_tile * 8u + (t.lane & 3u) * 2u + i % 2u;
    const u32 r = row + i / 2u * 8u;
    scores[wide_score_at(r, key)] = dots[i] * key_factors[key] * query_factors[r];
  }
}

/// Turns the scores of a tile into weights in halves, of which the largest is 1, or less if
/// `largest` was larger. LANES lanes a row.
template <u32 ROWS, u32 LANES>
MF_FN PartSum weigh_wide(MF_T t, MF_PARAMS(AttentionParams) p, f32 largest, QueryRow row,
                         u32 tile) {
  enum : u32 { kOwn = kWidePieces / LANES };
  if (t.index >= ROWS * LANES) return no_sum();
  const WideShared at = wide_shared<ROWS>(p);
  const u32 r = t.index / LANES;
  const u32 lane = t.index % LANES;
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, at.value_factors * 4u);
  const u32 own = at.scores + r * kWideScoreWords + lane * 4u;
  f32 scores[kOwn * 4u];
  f32 values[kOwn * 4u];
  MF_UNROLL
  for (u32 u = 0u; u < kOwn; ++u) {
    const u32 piece = lane + u * LANES;
    F4 four = load4(MF_SHARED_AT(t, f32, (own + u * LANES * 4u) * 4u));
    const F4 others =
        load4(MF_SHARED_AT(t, f32, (own + ROWS * kWideScoreWords + u * LANES * 4u) * 4u));
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      const u32 key = piece / 4u * 16u + piece % 4u + 4u * e;
      const bool seen = tile + key >= row.begin && tile + key < row.end;
      const f32 factor = factors[key];
      four.v[e] = four.v[e] + others.v[e];
      const f32 shift = (static_cast<f32>(as_bits(factor) >> 23u) - 127.0f);
      scores[u * 4u + e] = seen ? four.v[e] : -mf_infinity();
      values[u * 4u + e] = seen ? factor * weight_factor() : 0.0f;
      if (seen) largest = mf_max(largest, four.v[e] + shift);
    }
  }
  MF_UNROLL
  for (u32 mask = LANES / 2u; mask > 0u; mask /= 2u) {
    largest = mf_max(largest, simd_shuffle_xor(t, largest, mask));
  }
  f32 part = 0.0f;
  MF_UNROLL
  for (u32 u = 0u; u < kOwn; ++u) {
    F4 weights;
    f32 w[4];
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      const bool seen = values[u * 4u + e] != 0.0f;
      w[e] = seen ? mf_exp2(scores[u * 4u + e] - largest) : 0.0f;
      weights.v[e] = w[e] * values[u * 4u + e];
    }
    const f32 four = (w[0] + w[1]) + (w[2] + w[3]);
    part = u == 0u ? four : part + four;
    store4(MF_SHARED_AT(t, u32, (own + u * LANES * 4u) * 4u), split_four(weights));
  }
  MF_UNROLL
  for (u32 mask = LANES / 2u; mask > 0u; mask /= 2u) {
    part = part + simd_shuffle_xor(t, part, mask);
  }
  const PartSum sum = {largest, part};
  return sum;
}

/// The part of the result that a SIMD group has: TALL times 16 rows, and a block of 32 columns.
/// Product e of the block has columns e, 4 + e, ..., so that lanes read and write four columns side
/// by side.
template <u32 ROWS, u32 SIMDS>
struct WideOwner {
  enum : u32 {
    kTall = ROWS / 16u,
    kSums = kTall * 16u  // of product e of rows m: from (m * 4 + e) * 4 on
  };
  static MF_FN_MEMBER u32 block(MF_T t) { return t.simd * 32u; }
};

/// Adds weights times values of a tile, in HALVES, to a lane's sums: of TALL times 16 rows, from
/// `first` on.
template <u32 ROWS, u32 SIMDS, u32 HALVES, u32 TALL>
MF_FN void multiply_wide(MF_T t, MF_PARAMS(AttentionParams) p, u32 first, MF_LOCAL(f32) sums) {
  const WideShared at = wide_shared<ROWS>(p);
  const u32 block = WideOwner<ROWS, SIMDS>::block(t);
  const u32 key = t.lane & 3u;
  MF_SHARED(u32)
  weights =
      MF_SHARED_AT(t, u32, at.scores * 4u) + ((first + t.lane / 4u) * kWideScoreWords + key * 4u);
  // Columns that do not exist may be any: nobody stores their sums.
  const u32 piece = block + t.lane / 4u * 4u < p.v_head_dim ? block / 4u + t.lane / 4u : 0u;
  MF_SHARED(u32)
  values =
      MF_SHARED_AT(t, u32, at.staged * 4u) + (key * p.value_words + wide_piece(key, piece) * 4u);
  MF_ROLLED
  for (u32 k = 0u; k < kWideKeys; k += 16u) {
    W4 a[2u * TALL];
    MF_UNROLL
    for (u32 r = 0u; r < 2u * TALL; ++r) a[r] = load4(weights + (r * 8u * kWideScoreWords + k));
    W4 w[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) w[i] = load4(values + (k + i * 4u) * p.value_words);
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      u32 b[4];  // of the keys, high halves and low ones
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 left = w[i % 2u * 2u].v[i / 2u * 2u + e / 2u];
        const u32 right = w[i % 2u * 2u + 1u].v[i / 2u * 2u + e / 2u];
        b[i] = e % 2u == 0u ? (left & 0xffffu) | right << 16u : left >> 16u | (right & 0xffff0000u);
      }
      MF_UNROLL
      for (u32 m = 0u; m < TALL; ++m) {
        MF_LOCAL(f32) c = sums + (m * 4u + e) * 4u;
        const W4 x = a[2u * m];
        const W4 y = a[2u * m + 1u];
        matrix_multiply_add_f16(t, c, x.v[2], y.v[2], x.v[3], y.v[3], b[0], b[1]);
        if (HALVES == 2u) {
          matrix_multiply_add_f16(t, c, x.v[0], y.v[0], x.v[1], y.v[1], b[2], b[3]);
        }
        matrix_multiply_add_f16(t, c, x.v[0], y.v[0], x.v[1], y.v[1], b[0], b[1]);
      }
    }
  }
}

/// Adds weights times values of a tile to columns, which shrink first; sums of a tile that stands
/// for itself are made apart, 16 rows at a time, as registers are few.
template <u32 ROWS, u32 SIMDS, u32 HALVES, bool TILED>
MF_FN void add_wide(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(f32) columns) {
  typedef WideOwner<ROWS, SIMDS> Owner;
  if (Owner::block(t) >= p.v_head_dim) return;
  const WideShared at = wide_shared<ROWS>(p);
  MF_SHARED(f32) keeps = MF_SHARED_AT(t, f32, at.keep * 4u) + t.lane / 4u;
  MF_SHARED(f32) adds = MF_SHARED_AT(t, f32, at.add * 4u) + t.lane / 4u;
  if (!TILED) {
    MF_UNROLL
    for (u32 i = 0u; i < Owner::kSums; ++i) {
      columns[i] = columns[i] * keeps[i / 16u * 16u + i / 2u % 2u * 8u];
    }
    multiply_wide<ROWS, SIMDS, HALVES, Owner::kTall>(t, p, 0u, columns);
    return;
  }
  MF_UNROLL
  for (u32 m = 0u; m < Owner::kTall; ++m) {
    f32 sums[16];
    MF_UNROLL
    for (u32 i = 0u; i < 16u; ++i) sums[i] = 0.0f;
    multiply_wide<ROWS, SIMDS, HALVES, 1u>(t, p, m * 16u, sums);
    MF_UNROLL
    for (u32 i = 0u; i < 16u; ++i) {
      const u32 row = m * 16u + i / 2u % 2u * 8u;
      columns[m * 16u + i] = mf_fma(columns[m * 16u + i], keeps[row], sums[i] * adds[row]);
    }
  }
}

/// Adds a tile's scores to those of the split before it; how goes to shared memory.
template <u32 ROWS, u32 LANES, bool TILED>
MF_FN PartSum weigh_tile_of_split(MF_T t, MF_PARAMS(AttentionParams) p, PartSum sum, QueryRow row,
                                  u32 tile) {
  const WideShared at = wide_shared<ROWS>(p);
  const PartSum own = weigh_wide<ROWS, LANES>(
      t, p, TILED ? -mf_infinity() : static_cast<f32>(sum.largest), row, tile);
  if (t.index >= ROWS * LANES) return sum;
  PartMerge merge;
  if (TILED) {
    merge = merge_parts(sum, own);
  } else {
    merge.keep = sum.largest == -mf_infinity() ? 0.0f : mf_exp2(sum.largest - own.largest);
    merge.add = 1.0f;
    merge.all.largest = own.largest;
    merge.all.total = mf_fma(sum.total, merge.keep, own.total);
  }
  if (t.index % LANES == 0u) {
    MF_SHARED_AT(t, f32, at.keep * 4u)[t.index / LANES] = merge.keep;
    if (TILED) MF_SHARED_AT(t, f32, at.add * 4u)[t.index / LANES] = merge.add;
  }
  return merge.all;
}

/// The tile of a split that is on its way, and the pages it is read from.
template <typename Stored, u32 SIMDS, u32 UNITS>
struct WideReader {
  enum : u32 { kHalves = Halves<Stored>::kCount };
  RowStage<Stored, kWideKeys / SIMDS, UNITS> rows;
  WidePages pages;

  template <u32 BEGIN, u32 END>
  MF_FN_MEMBER void load_keys(MF_T t, MF_PARAMS(AttentionParams) p, TokenSequence sequence,
                              u32 tile, u32 low, u32 high) {
    turn_pages(p, &pages, sequence, tile);
    load_positions<BEGIN, END>(t, &rows, pages.keys, pages.begin, p.k_page, p.head_dim, p.head_dim,
                               tile, low, high);
  }
};

/// The keys [low, high) of a split, in tiles, of which the first is on its way.
template <u32 ROWS, u32 SIMDS, u32 LANES, bool TILED, typename Reader>
MF_FN PartSum attend_split(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(f32) columns,
                           TokenSequence sequence, MF_LOCAL(Reader) reader, QueryRow row, u32 low,
                           u32 high) {
  MF_UNROLL
  for (u32 i = 0u; i < WideOwner<ROWS, SIMDS>::kSums; ++i) columns[i] = 0.0f;
  // The other half would take registers that sums of tiles need.
  enum : u32 { kEarlyHalves = TILED ? 1u : 2u };
  PartSum sum = no_sum();
  const bool shares = p.shares_rows != 0u;
  MF_ROLLED
  for (u32 tile = low / kWideKeys * kWideKeys; tile < high; tile += kWideKeys) {
    const u32 next = tile + kWideKeys;
    store_keys<ROWS>(t, p, &reader->rows);
    barrier(t);
    const bool goes_on = next < high;
    if (!shares) {
      load_positions<0u, 2u>(t, &reader->rows, reader->pages.values, reader->pages.begin, p.v_page,
                             p.v_head_dim, p.v_scales, tile, low, high);
    } else if (goes_on) {
      reader->template load_keys<0u, kEarlyHalves>(t, p, sequence, next, low, high);
    }
    score_wide<ROWS, SIMDS, Reader::kHalves>(t, p);
    if (shares) {
      barrier(t);
    } else {
      u32 exponents[kWideKeys / SIMDS];
      weigh_values<ROWS>(t, p, &reader->rows, exponents);
      barrier(t);
      store_values<ROWS>(t, p, &reader->rows, exponents);
      if (goes_on) {
        reader->template load_keys<0u, kEarlyHalves>(t, p, sequence, next, low, high);
      }
    }
    sum = weigh_tile_of_split<ROWS, LANES, TILED>(t, p, sum, row, tile);
    barrier(t);
    add_wide<ROWS, SIMDS, Reader::kHalves, TILED>(t, p, columns);
    barrier(t);
    if (goes_on) {
      reader->template load_keys<kEarlyHalves, 2u>(t, p, sequence, next, low, high);
    }
  }
  return sum;
}

/// Adds a split's columns to those of the splits before it, which lie in `out`; or writes them to
/// the split's own place. The rows' factors lie in shared memory.
template <u32 ROWS, u32 SIMDS>
MF_FN void store_columns(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(const f32) columns,
                         MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials, GroupRows group,
                         bool is_first, bool finishes) {
  typedef WideOwner<ROWS, SIMDS> Owner;
  const WideShared at = wide_shared<ROWS>(p);
  MF_SHARED(f32) keeps = MF_SHARED_AT(t, f32, at.keep * 4u);
  MF_SHARED(f32) adds = MF_SHARED_AT(t, f32, at.add * 4u);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
  const bool alone = p.walks != 0u;
  const u32 first = Owner::block(t) + (t.lane & 3u) * 8u;
  MF_UNROLL
  for (u32 r = 0u; r < 2u * Owner::kTall; ++r) {
    const u32 r_in = t.lane / 4u + r * 8u;
    const QueryRow row = query_row(t, p, group, group.first + r_in);
    if (row.end == 0u) continue;
    MF_GLOBAL(f32)
    to = alone ? out + (row.token * p.out.token_stride + row.head * p.out.head_stride)
               : partials + partial_columns(p, partial_index(p, row.token, row.head, t.group.z));
    const f32 keep = keeps[r_in];
    const f32 add = adds[r_in];
    const f32 factor = finishes ? static_cast<f32>(factors[r_in]) : 1.0f;
    const bool adds_to = alone && !is_first && keep != 0.0f;
    MF_UNROLL
    for (u32 n = 0u; n < 2u; ++n) {
      const u32 d = first + n * 4u;
      if (d >= p.v_head_dim) continue;
      F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
      if (adds_to) four = load4(MF_CAST(const f32, to + d));
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) {
        const f32 own = columns[(r / 2u * 4u + e) * 4u + r % 2u * 2u + n] * wide_factor();
        const f32 value = alone ? mf_fma(four.v[e], keep, own * add) : own;
        four.v[e] = finishes ? mf_fma(value, factor, 0.0f) : value;
      }
      store4(to + d, four);
    }
  }
}

/// Group x: ROWS rows, the last ones first, as they take longest; y: a kv head; z: a split, if
/// there is more than one. The result of the splits so far lies in `out`.
template <typename Stored, u32 ROWS, u32 SIMDS, u32 UNITS>
MF_FN void attend_wide(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                       MF_GLOBAL(const u64) k_pages, MF_GLOBAL(const u64) v_pages,
                       MF_GLOBAL(const f32) sinks, MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials) {
  enum : u32 { kLanes = SIMDS * 32u / ROWS < 8u ? SIMDS * 32u / ROWS : 8u };
  const WideShared at = wide_shared<ROWS>(p);
  MF_SHARED(f32) keeps = MF_SHARED_AT(t, f32, at.keep * 4u);
  MF_SHARED(f32) adds = MF_SHARED_AT(t, f32, at.add * 4u);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);  // none are left to score
  const bool is_one_of_several = p.lengths != 0u;
  const u32 rows = is_one_of_several ? p.heads_per_kv_head : p.tokens * p.heads_per_kv_head;
  const u32 groups = (rows + ROWS - 1u) / ROWS * (is_one_of_several ? p.tokens : 1u);
  const GroupRows group = group_rows(t, p, k_pages, v_pages, groups - 1u - t.group.x, ROWS);
  const u32 behind = group.first + ROWS;
  const u32 begin = query_row(t, p, group, group.first).begin;
  const u32 end = query_row(t, p, group, (behind < group.end ? behind : group.end) - 1u).end;
  const bool alone = p.walks != 0u;
  const u32 seen = alone || is_one_of_several ? begin / kWideSplit : 0u;
  u32 split = seen + (alone ? 0u : p.first_part + t.group.z);
  const u32 last = alone ? (end - 1u) / kWideSplit : split;
  const u32 own_row = t.index / kLanes;
  const bool leads = t.index % kLanes == 0u && own_row < ROWS;
  PartSum all = no_sum();
  const QueryRow row = query_row(t, p, group, group.first + own_row);
  if (!alone && is_one_of_several && split * kWideSplit >= end) {
    return leave_no_part(t, p, partials, row, leads);  // a part that longer sequences have
  }
  f32 columns[WideOwner<ROWS, SIMDS>::kSums];
  WideReader<Stored, SIMDS, UNITS> reader;
  reader.pages.end = 0u;
  MF_ROLLED
  for (bool is_first = true; split <= last; ++split, is_first = false) {
    const u32 from = split * kWideSplit;
    const u32 low = begin > from ? begin : from;
    const u32 high = end < from + kWideSplit ? end : from + kWideSplit;
    reader.template load_keys<0u, 2u>(t, p, group.sequence, low / kWideKeys * kWideKeys, low, high);
    if (is_first) stage_queries<ROWS, SIMDS, UNITS>(t, p, q, group);
    const bool is_tiled = split < static_cast<u32>(kWideTiledSplits);
    const PartSum sum = is_tiled ? attend_split<ROWS, SIMDS, kLanes, true>(
                                       t, p, columns, group.sequence, &reader, row, low, high)
                                 : attend_split<ROWS, SIMDS, kLanes, false>(
                                       t, p, columns, group.sequence, &reader, row, low, high);
    const PartMerge merge = merge_parts(all, sum);
    all = alone ? merge.all : sum;
    const bool finishes = alone && split == last;
    if (leads) {
      keeps[own_row] = merge.keep;
      adds[own_row] = merge.add;
      if (finishes && row.end > 0u) {
        factors[own_row] = finish_factor(p, all, sinks, row.head);
      }
    }
    barrier(t);
    store_columns<ROWS, SIMDS>(t, p, columns, out, partials, group, is_first, finishes);
    if (!alone && leads && row.end > 0u) {
      MF_GLOBAL(f32)
      to = partials + partial_sums(p, partial_index(p, row.token, row.head, t.group.z));
      to[0] = sum.largest;
      to[1] = sum.total;
    }
    barrier(t);
  }
}

#define MF_ATTENTION_WIDE(name, STORED, ROWS)                                            \
  MF_FITS(512, 1)                                                                        \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_READ(1, u64, k_pages),         \
            MF_READ(2, u64, v_pages), MF_READ(3, f32, sinks), MF_WRITE(4, f32, out),     \
            MF_WRITE(5, f32, partials)) {                                                \
    MF_THREAD;                                                                           \
    attend_wide<STORED, ROWS, 16u, 5u>(t, p, q, k_pages, v_pages, sinks, out, partials); \
  }
MF_ATTENTION_WIDE(mma_attention_wide_r16, f32, 16u)
MF_ATTENTION_WIDE(mma_attention_wide_r32, f32, 32u)
MF_ATTENTION_WIDE(mma_attention_wide_f16_r16, u16, 16u)
MF_ATTENTION_WIDE(mma_attention_wide_f16_r32, u16, 32u)
MF_ATTENTION_WIDE(mma_attention_wide_q8_r16, u8, 16u)
MF_ATTENTION_WIDE(mma_attention_wide_q8_r32, u8, 32u)
#undef MF_ATTENTION_WIDE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
