// Attention over wide rows of few queries, whose values are the first columns of keys: a group has
// 16 rows of one kv head and one tile of 32 keys, and leaves its sums to a launch that merges them.
// Keys that older launches wrote are there in halves before the queries are, and the text has been
// walked through once: fetching instructions for the first time takes longer than executing them.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// The rows of a SIMD group, which it brings to shared memory: keys, then a query.
template <u32 SIMDS, u32 UNITS>
struct WideFewRows {
  enum : u32 { kKeys = kWideKeys / SIMDS, kCount = kKeys + 1u };
  u32 tile;
  u32 low;  // positions of the tile that exist
  u32 high;
  QueryRow query;
  bool is_real;  // the queries are there, and keys from p.begin on

  /// Where row i lies in shared memory, in rows; those of keys come after the queries.
  static MF_FN_MEMBER u32 place(MF_T t, u32 i) {
    return i < kKeys ? SIMDS + t.simd * kKeys + i : t.simd;
  }
  /// Whether row i is brought now. What is to come is zeros before.
  MF_FN_MEMBER bool is_due(MF_T t, MF_PARAMS(AttentionParams) p, u32 i) const {
    return !is_real || i == kKeys || tile + t.simd * kKeys + i >= p.begin;
  }
  /// Starts to copy what is due to where its halves will be. Each lane has units of its own.
  MF_FN_MEMBER void copy(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                         MF_GLOBAL(const f32) keys) const {
    MF_ROLLED
    for (u32 i = 0u; i < kCount; ++i) {
      if (!is_due(t, p, i)) continue;
      const u32 row = place(t, i);
      const u32 position = tile + t.simd * kKeys + i;
      const bool is_key = i < kKeys;
      const bool exists = is_key ? position >= low && position < high &&
                                       (is_real || position < p.begin)
                                 : is_real && query.end > 0u;
      MF_GLOBAL(const f32)
      from = is_key ? keys + (t.simd * kKeys + i) * p.k_page.token_stride
                    : q + (query.token * p.q.token_stride + query.head * p.q.head_stride);
      MF_GLOBAL(const u32) own = MF_CAST(const u32, from) + t.lane * 4u;
      MF_SHARED(u32)
      to = MF_SHARED_AT(t, u32, 0u) + (row * p.key_words + wide_unit(row, t.lane) * 4u);
      MF_UNROLL
      for (u32 u = 0u; u < UNITS; ++u) {
        const u32 c = t.lane * 4u + u * 128u;
        if (c >= wide_columns(p.head_dim)) continue;
        copy_async4_if(t, to + u * 128u, own + u * 128u, exists && c < p.head_dim);
      }
    }
    copies_commit(t);
  }
  /// What was copied becomes halves, where it is, and factors.
  MF_FN_MEMBER void split(MF_T t, MF_PARAMS(AttentionParams) p) const {
    const WideShared at = wide_shared<SIMDS>(p);
    MF_SHARED(f32) key_factors = MF_SHARED_AT(t, f32, at.key_factors * 4u);
    MF_SHARED(f32) value_factors = MF_SHARED_AT(t, f32, at.value_factors * 4u);
    MF_SHARED(f32) query_factors = MF_SHARED_AT(t, f32, at.query_factors * 4u);
    MF_ROLLED
    for (u32 i = 0u; i < kCount; ++i) {
      if (!is_due(t, p, i)) continue;
      const u32 row = place(t, i);
      RowStage<1u, UNITS> stage;
      stage.take_row(t, 0u, MF_SHARED_AT(t, f32, row * p.key_words * 4u), row,
                     wide_columns(p.head_dim));
      const u32 exponent = stage.exponent(t, 0u);
      stage.store_row(t, 0u, MF_SHARED_AT(t, u32, row * p.key_words * 4u), row,
                      wide_columns(p.head_dim), exponent);
      if (t.lane > 0u) continue;
      if (i < kKeys) {
        key_factors[row - SIMDS] = out_of_halves(exponent);
        value_factors[row - SIMDS] = value_factor(exponent);
      } else {
        query_factors[row] = out_of_halves(exponent) * p.scale;
      }
    }
  }
};

/// Writes a tile's sums of 16 rows to their place: without the factor of a split's sums.
template <u32 SIMDS>
MF_FN void store_tile(MF_T t, MF_PARAMS(AttentionParams) p, MF_LOCAL(const f32) sums,
                      MF_GLOBAL(f32) partials, u32 first_row) {
  const u32 first = WideOwner<SIMDS, SIMDS>::block(t) + (t.lane & 3u) * 8u;
  MF_UNROLL
  for (u32 r = 0u; r < 2u; ++r) {
    const QueryRow row = query_row(t, p, first_row + t.lane / 4u + r * 8u);
    if (row.end == 0u) continue;
    MF_GLOBAL(f32)
    to = partials + (partial_columns(p, partial_index(p, row.token, row.head, t.group.z)) + first);
    MF_UNROLL
    for (u32 n = 0u; n < 2u; ++n) {
      F4 four;
      MF_UNROLL
      for (u32 e = 0u; e < 4u; ++e) four.v[e] = sums[e * 4u + r * 2u + n];
      if (first + n * 4u < p.v_head_dim) store4(to + n * 4u, four);
    }
  }
}

/// Group x: 16 rows; y: a kv head; z: a tile.
template <u32 SIMDS, u32 UNITS>
MF_FN void attend_wide_few(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                           MF_GLOBAL(const u64) k_pages, MF_GLOBAL(f32) partials) {
  enum : u32 { kLanes = 8u };
  const u32 rows = p.tokens * p.heads_per_kv_head;
  const u32 first_row = t.group.x * SIMDS;
  const u32 last_row = first_row + SIMDS < rows ? first_row + SIMDS - 1u : rows - 1u;
  WideFewRows<SIMDS, UNITS> own;
  own.tile = (p.first_part + t.group.z) * kWideKeys;
  own.low = query_row(t, p, first_row).begin;
  own.high = query_row(t, p, last_row).end;
  own.query = query_row(t, p, first_row + t.simd);
  const QueryRow row = query_row(t, p, first_row + t.index / kLanes);
  const u32 number = own.tile / p.page_tokens;
  MF_GLOBAL(const f32)
  keys = MF_AT(t, const f32, k_pages[number % p.num_pages]) +
         ((own.tile - number * p.page_tokens) * p.k_page.token_stride +
          t.group.y * p.k_page.head_stride);
  const bool rehearses = should_rehearse(t);
  MF_ROLLED
  for (u32 pass = 0u; pass < 2u; ++pass) {
    own.is_real = pass > 0u;
    if (own.is_real) await_inputs(t);
    own.copy(t, p, q, keys);
    copies_wait<0>(t);
    own.split(t, p);
    if (!own.is_real && !rehearses) continue;
    barrier(t);
    score_wide<SIMDS, SIMDS>(t, p);
    barrier(t);
    const PartSum sum = weigh_wide<SIMDS, kLanes>(t, p, row, own.tile);
    barrier(t);
    f32 sums[16];
    multiply_wide<SIMDS, SIMDS>(t, p, 0u, sums);
    barrier(t);
    if (!own.is_real) continue;
    store_tile<SIMDS>(t, p, sums, partials, first_row);
    if (t.index % kLanes == 0u && t.index < SIMDS * kLanes && row.end > 0u) {
      MF_GLOBAL(f32)
      to = partials + partial_sums(p, partial_index(p, row.token, row.head, t.group.z));
      to[0] = sum.largest;
      to[1] = sum.total;
    }
  }
}

// With registers for others beside it.
MF_FITS(768, 1)
MF_KERNEL(attention_wide_few, AttentionParams, MF_READ(0, f32, q), MF_CONST(1, u64, k_pages),
          MF_WRITE(2, f32, partials)) {
  MF_THREAD_EARLY;
  let_next_start(t);
  attend_wide_few<16u, 5u>(t, p, q, k_pages, partials);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
