// Wide queries, keys and values on their way to matrix units: read from pages, scaled by a power
// of two, in halves of f16, in shared memory in the order in which lanes read them.
#pragma once

#include "backend/gpu/kernels/attention/cached.h"
#include "backend/gpu/kernels/attention/mma_attention_halves.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/matmul/block_exponent.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 {
  kWidePieces = kWideKeys / 4u,       // of 4 keys, in a row of scores
  kWideScoreWords = kWideKeys + 16u,  // from one row of scores to the next, 16 against conflicts
};

/// The exponent of the largest of a SIMD group's rows, from the maxima of the bits of its lanes.
MF_FN u32 row_exponent(MF_T t, u32 bits) { return block_exponent(simd_max(t, bits)); }

/// Where a piece of 4 columns lies in a row: rows are 16 banks apart, and so neither lanes that
/// read 4 pieces of 2 rows meet in a bank nor those that read 2 pieces of 4 rows.
MF_FN u32 wide_piece(u32 row, u32 piece) { return piece ^ (row & 2u); }
/// Columns with the zeros behind them, which are multiplied two steps of 16 at a time.
MF_FN u32 wide_columns(u32 cols) { return (cols + 31u) & ~31u; }

/// COUNT rows of up to UNITS * 128 columns that a SIMD group brings to shared memory; a lane has
/// every 32nd piece of 4 columns.
template <typename Stored, u32 COUNT, u32 UNITS>
struct RowStage {
  typedef Stored Number;
  enum : u32 { kCount = COUNT };
  CachedFour<Stored> held[COUNT * UNITS];

  /// Row i, or zeros where it does not exist.
  MF_FN_MEMBER void load_row(MF_T t, u32 i, MF_GLOBAL(const Stored) from, u32 cols, u32 scales,
                             bool exists) {
    const u32 left = exists ? cols : 0u;
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      CachedFour<Stored> four;
      four.clear();
      if (t.lane * 4u + 128u * u < left) four.load(from, t.lane * 4u + 128u * u, scales);
      held[i * UNITS + u] = four;
    }
  }
  /// Row i from where its halves will be. As many lanes as four words have pieces find theirs in
  /// the place of the first.
  MF_FN_MEMBER void take_row(MF_T t, u32 i, MF_SHARED(u32) from, u32 row, u32 cols) {
    enum : u32 { kWords = sizeof(Stored), kTogether = 4u / kWords };
    const u32 within = t.lane % kTogether;
    if (kTogether > 1u) simd_barrier(t);  // another lane's copy brought a half
    MF_SHARED(u32) own = from + (wide_piece(row, t.lane - within) * 4u + within * kWords);
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      CachedFour<Stored> four;
      four.clear();
      if (t.lane * 4u + 128u * u < cols) four.take(own + 128u * u, 0u, 0u);
      held[i * UNITS + u] = four;
    }
    if (kTogether > 1u) simd_barrier(t);
  }
  MF_FN_MEMBER void clear_row(u32 i) {
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) held[i * UNITS + u].clear();
  }
  /// The exponent of the largest number of row i. A row with NaN or infinity is stored as zeros
  /// with a factor that is not finite, so that results whose weight for it is zero stay clean.
  MF_FN_MEMBER u32 exponent(MF_T t, u32 i) {
    u32 bits = 0u;
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) bits = largest_bits(held[i * UNITS + u].numbers(), bits);
    const u32 exponent = row_exponent(t, bits);
    if (exponent == kNotFinite) clear_row(i);
    return exponent;
  }
  /// Row i in halves, as row `row` in shared memory; `cols` is a multiple of 32.
  MF_FN_MEMBER void store_row(MF_T t, u32 i, MF_SHARED(u32) to, u32 row, u32 cols,
                              u32 exponent) const {
    const f32 factor = into_halves(exponent);
    MF_SHARED(u32) own = to + wide_piece(row, t.lane) * 4u;
    MF_UNROLL
    for (u32 u = 0u; u < UNITS; ++u) {
      const W4 piece = split_four(scaled(held[i * UNITS + u].numbers(), factor));
      // The branch is not around the whole loop: pieces must not wait for each other.
      if (t.lane * 4u + 128u * u < cols) store4(own + 128u * u, piece);
    }
  }
};

/// The pages that tiles are read from: looking them up takes longer than reading a row, so it is
/// done once a page.
struct WidePages {
  u64 keys;
  u64 values;
  u32 begin;
  u32 end;  // 0: none yet
};

MF_FN void turn_pages(MF_PARAMS(AttentionParams) p, MF_LOCAL(WidePages) pages,
                      TokenSequence sequence, u32 first) {
  if (first < pages->end) return;
  const u32 number = first / p.page_tokens;
  pages->keys = sequence.k_pages[number % sequence.num_pages];
  pages->values = sequence.v_pages[number % sequence.num_pages];
  pages->begin = number * p.page_tokens;
  pages->end = pages->begin + p.page_tokens;
}

/// The positions from `first` on, a stage for every SIMD group, of which [low, high) exist. `page`
/// begins at `page_begin` and has the whole tile. Takes a stage's rows from half BEGIN to END.
template <u32 BEGIN, u32 END, typename Stage>
MF_FN void load_positions(MF_T t, MF_LOCAL(Stage) stage, u64 page, u32 page_begin,
                          HeadsLayout layout, u32 cols, u32 scales, u32 first, u32 low, u32 high) {
  const u32 begin = first + t.simd * Stage::kCount;
  MF_GLOBAL(const typename Stage::Number)
  from = MF_AT(t, const typename Stage::Number, page) +
         ((begin - page_begin) * layout.token_stride + t.group.y * layout.head_stride);
  MF_UNROLL
  for (u32 i = BEGIN * Stage::kCount / 2u; i < END * Stage::kCount / 2u; ++i) {
    stage->load_row(t, i, from + i * layout.token_stride, cols, scales,
                    begin + i >= low && begin + i < high);
  }
}

/// Where things lie in shared memory, in words. The host asks for kWords of it in all.
struct WideShared {
  u32 staged;  // 32 keys or values, after the queries
  u32 scores;
  u32 key_factors;
  u32 value_factors;
  u32 query_factors;
  u32 keep;
  u32 add;
};

template <u32 ROWS>
MF_FN WideShared wide_shared(MF_PARAMS(AttentionParams) p) {
  WideShared at;
  at.staged = ROWS * p.key_words;
  at.scores = at.staged + kWideKeys * (p.key_words > p.value_words ? p.key_words : p.value_words);
  at.key_factors = at.scores + 2u * ROWS * kWideScoreWords;
  at.value_factors = at.key_factors + kWideKeys;
  at.query_factors = at.value_factors + kWideKeys;
  at.keep = at.query_factors + ROWS;
  at.add = at.keep + ROWS;
  return at;
}

/// Queries in halves, and their factors with the scale.
template <u32 ROWS, u32 SIMDS, u32 UNITS>
MF_FN void stage_queries(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                         GroupRows group) {
  const WideShared at = wide_shared<ROWS>(p);
  MF_SHARED(u32) queries = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
  RowStage<f32, 1u, UNITS> stage;
  for (u32 r = t.simd; r < ROWS; r += SIMDS) {
    const QueryRow row = query_row(t, p, group, group.first + r);
    stage.load_row(t, 0u, q + (row.token * p.q.token_stride + row.head * p.q.head_stride),
                   p.head_dim, 0u, row.end > 0u);
    const u32 exponent = stage.exponent(t, 0u);
    stage.store_row(t, 0u, queries + r * p.key_words, r, wide_columns(p.head_dim), exponent);
    if (t.lane == 0u) factors[r] = out_of_halves(exponent) * p.scale;
  }
}

/// The factor of a value, which weights need; not a number if the value is not finite.
MF_FN f32 value_factor(u32 exponent) {
  return as_float(exponent == kNotFinite ? 0x7fc00000u : exponent << 23u);
}

/// A stage's keys in halves, and their factors. Where values are parts of keys they are there now
/// too, and have the keys' exponents.
template <u32 ROWS, typename Stage>
MF_FN void store_keys(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(Stage) stage) {
  const WideShared at = wide_shared<ROWS>(p);
  MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, at.staged * 4u);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, at.key_factors * 4u);
  MF_SHARED(f32) values = MF_SHARED_AT(t, f32, at.value_factors * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < Stage::kCount; ++i) {
    const u32 key = t.simd * Stage::kCount + i;
    const u32 exponent = stage->exponent(t, i);
    stage->store_row(t, i, staged + key * p.key_words, key, wide_columns(p.head_dim), exponent);
    if (t.lane == 0u) {
      factors[key] = out_of_halves(exponent);
      if (p.shares_rows != 0u) values[key] = value_factor(exponent);
    }
  }
}

/// A stage's values: their factors first, then they themselves.
template <u32 ROWS, typename Stage>
MF_FN void weigh_values(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(Stage) stage,
                        MF_LOCAL(u32) exponents) {
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, wide_shared<ROWS>(p).value_factors * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < Stage::kCount; ++i) {
    exponents[i] = stage->exponent(t, i);
    if (t.lane == 0u) factors[t.simd * Stage::kCount + i] = value_factor(exponents[i]);
  }
}
template <u32 ROWS, typename Stage>
MF_FN void store_values(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(Stage) stage,
                        MF_LOCAL(const u32) exponents) {
  MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, wide_shared<ROWS>(p).staged * 4u);
  MF_UNROLL
  for (u32 i = 0u; i < Stage::kCount; ++i) {
    const u32 key = t.simd * Stage::kCount + i;
    stage->store_row(t, i, staged + key * p.value_words, key, wide_columns(p.v_head_dim),
                     exponents[i]);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
