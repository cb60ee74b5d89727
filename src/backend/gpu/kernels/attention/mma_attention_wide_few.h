// Attention over wide rows of few queries, whose values are the first columns of keys: a group has
// eight rows of one kv head and one tile of 32 keys, and leaves its sums to a launch that merges
// them. Keys that older launches wrote are there in halves before the queries are.
#pragma once

#include "backend/gpu/kernels/attention/mma_attention_wide.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/row_stage.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/matmul/block_exponent.h"

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 { kWideFewPieces = 5 };

/// Starts to copy a row of keys or queries to where its halves will be; zeros, if it does not
/// exist. Four words at a time go to the place of their first piece (RowStage::take_row).
template <typename Stored>
MF_FN void copy_wide_row(MF_T t, MF_PARAMS(AttentionParams) p, u32 row,
                         MF_GLOBAL(const Stored) from, bool exists) {
  enum : u32 { kPieces = 4u / sizeof(Stored), kCols = kPieces * 4u };
  MF_GLOBAL(const u32) own = MF_CAST(const u32, from) + t.lane * 4u;
  MF_SHARED(u32)
  to = MF_SHARED_AT(t, u32, 0u) + (row * p.key_words + wide_piece(row, t.lane * kPieces) * 4u);
  const u32 pieces = kWideFewPieces;
  MF_UNROLL
  for (u32 u = 0u; u < (pieces + kPieces - 1u) / kPieces; ++u) {
    const u32 c = (t.lane + u * 32u) * kCols;
    if (c >= wide_columns(p.head_dim)) continue;
    copy_async4_if(t, to + u * 128u * kPieces, own + u * 128u, exists && c < p.head_dim);
  }
}

/// Turns the copied row into halves in place. Returns the row's exponent.
template <typename Stored>
MF_FN u32 split_wide_row(MF_T t, MF_PARAMS(AttentionParams) p, u32 row) {
  const u32 at = row * p.key_words * 4u;
  RowStage<Stored, 1u, kWideFewPieces> stage;
  stage.take_row(t, 0u, MF_SHARED_AT(t, u32, at), row, wide_columns(p.head_dim));
  const u32 exponent = stage.exponent(t, 0u);
  stage.store_row(t, 0u, MF_SHARED_AT(t, u32, at), row, wide_columns(p.head_dim), exponent);
  return exponent;
}
template <typename Stored>
MF_FN void split_wide_key(MF_T t, MF_PARAMS(AttentionParams) p, u32 key) {
  const WideShared at = wide_shared<kWideFewRows>(p);
  const u32 exponent = split_wide_row<Stored>(t, p, kWideFewRows + key);
  if (t.lane > 0u) return;
  MF_SHARED_AT(t, f32, at.key_factors * 4u)[key] = out_of_halves(exponent);
  MF_SHARED_AT(t, f32, at.value_factors * 4u)[key] = value_factor(exponent);
}

/// Scores as score_wide() has them, where keys are the first factor: of 16 keys and a half of the
/// columns. Keys are in HALVES.
template <u32 HALVES>
MF_FN void score_wide_few(MF_T t, MF_PARAMS(AttentionParams) p) {
  enum : u32 { kKeyTiles = kWideKeys / 16u };
  if (t.simd >= 2u * kKeyTiles) return;
  const WideShared at = wide_shared<kWideFewRows>(p);
  const u32 first_key = t.simd % kKeyTiles * 16u + t.lane / 4u;
  const u32 half = t.simd / kKeyTiles;
  const u32 own = wide_piece(t.lane / 4u, t.lane & 3u) * 4u;
  MF_SHARED(u32) queries = MF_SHARED_AT(t, u32, 0u) + (t.lane / 4u * p.key_words + own);
  MF_SHARED(u32)
  keys = MF_SHARED_AT(t, u32, at.staged * 4u) + (first_key * p.key_words + own);
  f32 dots[4];
  multiply_wide_rows<HALVES, 2u>(t, p, half, keys, queries, dots);
  MF_SHARED(f32) key_factors = MF_SHARED_AT(t, f32, at.key_factors * 4u);
  MF_SHARED(f32) query_factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
  MF_SHARED(f32)
  scores = MF_SHARED_AT(t, f32, (at.scores + half * kWideFewRows * kWideScoreWords) * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 key = first_key + i / 2u * 8u;
    const u32 r = (t.lane & 3u) * 2u + i % 2u;
    scores[wide_score_at(r, key)] = dots[i] * key_factors[key] * query_factors[r];
  }
}

/// A lane's sums of weights times values, as multiply_wide() has them: of rows 2 i and 2 i + 1,
/// four columns each. Values are in HALVES.
template <u32 HALVES>
MF_FN void multiply_wide_few(MF_T t, MF_PARAMS(AttentionParams) p, u32 piece, MF_LOCAL(f32) sums) {
  const WideShared at = wide_shared<kWideFewRows>(p);
  const u32 key = t.lane & 3u;
  MF_SHARED(u32)
  weights = MF_SHARED_AT(t, u32, at.scores * 4u) + (t.lane / 4u * kWideScoreWords + key * 4u);
  MF_SHARED(u32)
  values =
      MF_SHARED_AT(t, u32, at.staged * 4u) + (key * p.value_words + wide_piece(key, piece) * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < 8u; ++i) sums[i] = 0.0f;
  MF_UNROLL
  for (u32 k = 0u; k < kWideKeys; k += 16u) {
    const W4 x = load4(weights + k);
    W4 w[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) w[i] = load4(values + (k + i * 4u) * p.value_words);
    MF_UNROLL
    for (u32 pair = 0u; pair < 2u; ++pair) {
      // An even and an odd column: keys' first and second pairs, high halves and low ones.
      u32 a[8];
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 left = w[i % 2u * 2u].v[i / 2u * 2u + pair];
        const u32 right = w[i % 2u * 2u + 1u].v[i / 2u * 2u + pair];
        a[i * 2u] = (left & 0xffffu) | right << 16u;
        a[i * 2u + 1u] = left >> 16u | (right & 0xffff0000u);
      }
      MF_LOCAL(f32) c = sums + pair * 4u;
      matrix_multiply_add_f16(t, c, a[0], a[1], a[2], a[3], x.v[2], x.v[3]);
      if (HALVES == 2u) {
        matrix_multiply_add_f16(t, c, a[4], a[5], a[6], a[7], x.v[0], x.v[1]);
      }
      matrix_multiply_add_f16(t, c, a[0], a[1], a[2], a[3], x.v[0], x.v[1]);
    }
  }
}

/// A group's tile, and the keys of it that each SIMD group brings.
template <typename Stored>
struct WideTile {
  enum : u32 { kKeysOwn = 2u };
  u32 first;  // position
  u32 low;    // positions that any of the rows sees
  u32 high;
  u32 new_from;  // the launch before writes positions from here on
  MF_GLOBAL(const Stored) keys;

  /// Whether the launch before writes a position that exists.
  MF_FN_MEMBER bool is_new(u32 key) const { return first + key >= new_from && first + key < high; }
  MF_FN_MEMBER void copy(MF_T t, MF_PARAMS(AttentionParams) p, u32 key) const {
    copy_wide_row<Stored>(t, p, kWideFewRows + key, keys + key * p.k_page.token_stride,
                          first + key >= low && first + key < high);
  }
  MF_FN_MEMBER void copy_old(MF_T t, MF_PARAMS(AttentionParams) p) const {
    MF_UNROLL
    for (u32 i = 0u; i < kKeysOwn; ++i) {
      const u32 key = t.simd * kKeysOwn + i;
      if (!is_new(key)) copy(t, p, key);
    }
    copies_commit(t);
  }
  MF_FN_MEMBER void split_old(MF_T t, MF_PARAMS(AttentionParams) p) const {
    copies_wait<0>(t);
    MF_ROLLED
    for (u32 i = 0u; i < kKeysOwn; ++i) {
      const u32 key = t.simd * kKeysOwn + i;
      if (!is_new(key)) split_wide_key<Stored>(t, p, key);
    }
  }
  /// The new keys, every eighth from number `own` on.
  MF_FN_MEMBER void bring_new(MF_T t, MF_PARAMS(AttentionParams) p, u32 own) const {
    const u32 begin = (new_from > first ? new_from - first : 0u) + own;
    MF_ROLLED
    for (u32 key = begin; key < kWideKeys && first + key < high; key += kWideFewRows) {
      copy(t, p, key);
      copies_commit(t);
      copies_wait<0>(t);
      split_wide_key<Stored>(t, p, key);
    }
  }
};

/// A SIMD group's query.
MF_FN void bring_wide_query(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                            QueryRow row) {
  copy_wide_row<f32>(t, p, t.simd, q + (row.token * p.q.token_stride + row.head * p.q.head_stride),
                     row.end > 0u);
  copies_commit(t);
  copies_wait<0>(t);
  const u32 exponent = split_wide_row<f32>(t, p, t.simd);
  MF_SHARED(f32)
  factors = MF_SHARED_AT(t, f32, wide_shared<kWideFewRows>(p).query_factors * 4u);
  if (t.lane == 0u) factors[t.simd] = out_of_halves(exponent) * p.scale;
}

/// Where a lane's sums go.
struct WideFewPlaces {
  u64 at[2];
  bool exists[2];

  MF_FN_MEMBER void find(MF_T t, MF_PARAMS(AttentionParams) p, GroupRows group, u32 piece) {
    MF_UNROLL
    for (u32 j = 0u; j < 2u; ++j) {
      const QueryRow row = query_row(t, p, group, group.first + (t.lane & 3u) * 2u + j);
      exists[j] = row.end > 0u && piece * 4u < p.v_head_dim;
      at[j] = partial_columns(p, partial_index(p, row.token, row.head, t.group.z)) + piece * 4u;
    }
  }
  MF_FN_MEMBER void store(MF_GLOBAL(f32) partials, MF_LOCAL(const f32) sums) const {
    MF_UNROLL
    for (u32 j = 0u; j < 2u; ++j) {
      const F4 four = {{sums[j], sums[2u + j], sums[4u + j], sums[6u + j]}};
      if (exists[j]) store4(partials + at[j], four);
    }
  }
};

/// Group x: eight rows; y: a kv head; z: a tile. Few registers, so that groups of other launches
/// fit beside it.
template <typename Stored>
MF_FN void attend_wide_few(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                           MF_GLOBAL(const u64) k_pages, MF_GLOBAL(f32) partials) {
  let_next_start(t);  // which reads nothing but weights before its inputs
  enum : u32 { kLanes = 8u };
  // Where values are parts of keys, their pages are those of keys.
  const GroupRows group = group_rows(t, p, k_pages, k_pages, t.group.x, kWideFewRows);
  const u32 behind = group.first + kWideFewRows;
  const QueryRow last = query_row(t, p, group, (behind < group.end ? behind : group.end) - 1u);
  const u32 begin = (p.first_part + t.group.z) * kWideKeys;
  if (p.lengths != 0u && begin >= last.end) {  // a part that longer sequences have
    await_inputs(t);
    const QueryRow own = query_row(t, p, group, group.first + t.index / kLanes % kWideFewRows);
    return leave_no_part(t, p, partials, own,
                         t.index / kLanes < kWideFewRows && t.index % kLanes == 0u);
  }
  const u32 number = begin / p.page_tokens;
  const u64 offset =
      (begin - number * p.page_tokens) * p.k_page.token_stride + t.group.y * p.k_page.head_stride;
  const TokenSequence sequence = group.sequence;
  const WideTile<Stored> tile = {
      begin, query_row(t, p, group, group.first).begin, last.end, sequence.position,
      MF_AT(t, const Stored, sequence.k_pages[number % sequence.num_pages]) + offset};
  tile.copy_old(t, p);
  // Where rows are and go, while keys are on their way.
  const QueryRow query = query_row(t, p, group, group.first + t.simd % kWideFewRows);
  const QueryRow row = query_row(t, p, group, group.first + t.index / kLanes % kWideFewRows);
  const u64 row_sums = partial_sums(p, partial_index(p, row.token, row.head, t.group.z));
  const u32 piece = t.simd * 8u + t.lane / 4u;
  WideFewPlaces places;
  places.find(t, p, group, piece);
  tile.split_old(t, p);
  await_inputs(t);
  // Half of the SIMD groups have a query each, the others new keys.
  if (t.simd < kWideFewRows) {
    bring_wide_query(t, p, q, query);
  } else {
    tile.bring_new(t, p, t.simd - kWideFewRows);
  }
  barrier(t);
  score_wide_few<Halves<Stored>::kCount>(t, p);
  barrier(t);
  const PartSum sum = weigh_wide<kWideFewRows, kLanes>(t, p, -mf_infinity(), row, begin);
  barrier(t);
  f32 sums[8];
  // Columns that do not exist may be any: nobody stores their sums.
  multiply_wide_few<Halves<Stored>::kCount>(t, p, piece * 4u < p.v_head_dim ? piece : 0u, sums);
  places.store(partials, sums);
  if (t.index / kLanes < kWideFewRows && t.index % kLanes == 0u && row.end > 0u) {
    MF_GLOBAL(f32) to = partials + row_sums;
    to[0] = sum.largest;
    to[1] = sum.total;
  }
}

#define MF_ATTENTION_WIDE_FEW(name, STORED)                                       \
  MF_FITS(512, 2)                                                                 \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_CONST(1, u64, k_pages), \
            MF_WRITE(2, f32, partials)) {                                         \
    MF_THREAD_EARLY;                                                              \
    attend_wide_few<STORED>(t, p, q, k_pages, partials);                          \
  }
MF_ATTENTION_WIDE_FEW(mma_attention_wide_few, f32)
MF_ATTENTION_WIDE_FEW(mma_attention_wide_few_f16, u16)
#undef MF_ATTENTION_WIDE_FEW

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
