// Scores of candidates by index heads on matrix units. Numbers are multiplied as attention's are:
// sums of two f16, with a factor for each query and each key. A lane adds the heads of its rows in
// order, and lanes are added in a tree, so a score depends on its query and its key alone.
#pragma once

#include "backend/gpu/kernels/attention/index_scores.h"
#include "backend/gpu/kernels/attention/mma_attention_tiles.h"
#include "backend/gpu/kernels/attention/select_params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Sixteen heads: in halves, 16 columns after another, and what their scores are multiplied by.
MF_FN void stage_index_heads(MF_T t, MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(const f32) q,
                             MF_GLOBAL(const f32) weights, MF_SHARED(u32) queries,
                             MF_SHARED(f32) factors, MF_SHARED(f32) shares) {
  const u32 rows = (p.heads + 15u) / 16u * 16u;
  for (u32 r = t.simd; r < rows; r += t.simds) {
    MF_SHARED(u32) to = queries + r / 16u * p.key_steps * kTileRowsWords;
    F4 held[kQueryPieces];
    u32 bits = 0u;
    MF_UNROLL
    for (u32 u = 0u; u < kQueryPieces; ++u) {
      const u32 c = u * 128u + t.lane * 4u;
      held[u] = no_columns();
      if (r < p.heads && c < p.head_dim) held[u] = load4(q + (r * p.q.head_stride + c));
      bits = largest_bits(held[u], bits);
    }
    const u32 exponent = block_exponent(simd_max(t, bits));
    MF_UNROLL
    for (u32 u = 0u; u < kQueryPieces; ++u) {
      const u32 s = u * 8u + t.lane / 4u;
      if (s >= p.key_steps) continue;
      store_piece(to + s * kTileRowsWords, r % 16u, t.lane & 3u,
                  split_four(scaled(held[u], into_halves(exponent))));
    }
    if (t.lane != 0u) continue;
    factors[r] = out_of_halves(exponent);
    shares[r] = p.has_weights != 0u && r < p.heads ? weights[r] : 1.0f;
  }
}

/// A SIMD group's keys of a tile, two eights, and what numbers are multiplied by to be in halves.
template <typename Stored>
struct IndexKeys {
  KeyRows<Stored> rows[2];
  f32 into[2];

  MF_FN_MEMBER void take_exponents(u32 first, u32 second) {
    into[0] = into_halves(first);
    into[1] = into_halves(second);
  }
  MF_FN_MEMBER void multiply(MF_T t, TileRows x, u32 s, MF_LOCAL(TileDots<2u>) dots) const {
    const W4 k[2] = {split_four(scaled(rows[0].numbers(s), into[0])),
                     split_four(scaled(rows[1].numbers(s), into[1]))};
    dots->add(t, x, k);
  }
};
/// Numbers of 16 bits have one half, which is made once for all heads.
template <>
struct IndexKeys<u16> {
  KeyRows<u16> rows[2];
  W4 larger[kTileSteps];

  MF_FN_MEMBER void take_exponents(u32 first, u32 second) {
    MF_UNROLL
    for (u32 s = 0u; s < kTileSteps; ++s) {
      const W2 a = larger_halves(scaled(rows[0].numbers(s), into_halves(first)));
      const W2 b = larger_halves(scaled(rows[1].numbers(s), into_halves(second)));
      const W4 both = {{a.v[0], a.v[1], b.v[0], b.v[1]}};
      larger[s] = both;
    }
  }
  MF_FN_MEMBER void multiply(MF_T t, TileRows x, u32 s, MF_LOCAL(TileDots<2u>) dots) const {
    dots->add_larger(t, x, larger + s);
  }
};

/// Adds 16 heads to a lane's sums of four keys, two of each eight.
MF_FN void add_index_rows(MF_T t, MF_PARAMS(IndexScoresParams) p, u32 first,
                          MF_LOCAL(const TileDots<2u>) dots, MF_SHARED(f32) factors,
                          MF_SHARED(f32) shares, MF_LOCAL(const f32) out_of, MF_LOCAL(f32) sums) {
  const bool clips = p.has_weights != 0u || p.relu != 0u;
  MF_UNROLL
  for (u32 below = 0u; below < 2u; ++below) {
    const u32 r = first + t.lane / 4u + below * 8u;
    if (r >= p.heads) continue;
    const f32 factor = factors[r];
    const f32 share = shares[r];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const f32 dot = dots->dot(i / 2u, below * 2u + i % 2u) * factor * out_of[i];
      sums[i] = mf_fma(share, clips && dot < 0.0f ? 0.0f : dot, sums[i]);
    }
  }
}

/// A SIMD group's keys of a tile, of which those of a span are needed.
template <typename Stored>
MF_FN void load_index_keys(MF_T t, MF_PARAMS(IndexScoresParams) p, IndexSpan span, u32 tile,
                           MF_LOCAL(IndexKeys<Stored>) keys) {
  const TokenSequence sequence = span.sequence;
  MF_UNROLL
  for (u32 n = 0u; n < 2u; ++n) {
    const u32 eight = tile + t.simd * 16u + n * 8u;
    // Eight positions from a multiple of eight lie in one page; where there are none, in any.
    const u32 at = eight < span.end ? eight : span.begin / 8u * 8u;
    MF_GLOBAL(const Stored)
    page = MF_AT(t, const Stored, sequence.k_pages[at / p.page_keys % sequence.num_pages]);
    const u32 key = eight + t.lane / 4u;
    keys->rows[n].load(t, page + (at % p.page_keys + t.lane / 4u) * p.page_stride, p.head_dim,
                       key >= span.begin && key < span.end);
  }
}

/// Group x: a span of keys; y: a token; z: a group of heads. kIndexThreads threads, whose SIMD
/// groups have 16 keys of a tile of 64 each. Shared: the queries of all heads with two factors
/// each; the scores of a span, where candidates have several keys.
template <typename Stored>
MF_FN void score_tiles(MF_T t, MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(const f32) q,
                       MF_GLOBAL(const f32) weights, MF_GLOBAL(const u64) k_pages,
                       MF_GLOBAL(f32) scores) {
  const u32 rows = (p.heads + 15u) / 16u * 16u;
  MF_SHARED(u32) queries = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, rows * p.key_steps * 64u);
  MF_SHARED(f32) shares = factors + rows;
  MF_SHARED(f32) found = shares + rows;
  const IndexSpan span = index_span(t, p, k_pages);
  if (span.is_empty()) return;
  MF_GLOBAL(f32) to = span.scores(t, p, scores);
  stage_index_heads(t, p, span.queries(p, q), span.factors(p, weights), queries, factors, shares);
  barrier(t);
  MF_ROLLED
  for (u32 tile = span.begin / 8u * 8u; tile < span.end; tile += kTileKeys) {
    IndexKeys<Stored> keys;
    load_index_keys(t, p, span, tile, &keys);
    const u32 exponents[2] = {key_exponent(t, &keys.rows[0]), key_exponent(t, &keys.rows[1])};
    keys.take_exponents(exponents[0], exponents[1]);
    f32 out_of[4];
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 from = (t.lane & 3u) * 8u + i % 2u * 4u;
      out_of[i] = simd_shuffle(t, out_of_halves(exponents[i / 2u]), from);
    }
    f32 sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    MF_ROLLED
    for (u32 first = 0u; first < p.heads; first += 16u) {
      MF_SHARED(u32) x = queries + (first * p.key_steps * 16u + t.lane * 4u);
      TileDots<2u> dots;
      dots.clear();
      MF_UNROLL
      for (u32 s = 0u; s < kTileSteps; ++s) {
        if (s >= p.key_steps) continue;
        keys.multiply(t, load_rows(x + s * kTileRowsWords), s, &dots);
      }
      add_index_rows(t, p, first, &dots, factors, shares, out_of, sums);
    }
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      f32 sum = sums[i];
      MF_UNROLL
      for (u32 mask = 4u; mask < 32u; mask *= 2u) sum = sum + simd_shuffle_xor(t, sum, mask);
      const u32 key = tile + t.simd * 16u + i / 2u * 8u + (t.lane & 3u) * 2u + i % 2u;
      if (t.lane >= 4u || key < span.begin || key >= span.end) continue;
      leave_score(p, span, key, sum, found, to);
    }
  }
  if (p.unit == 1u) return;
  barrier(t);
  best_of_units(t, p, found, span.end - span.begin, to + span.begin / p.unit);
}

#define MF_INDEX_SCORES(name, KEY)                                                 \
  MF_KERNEL(name, IndexScoresParams, MF_READ(0, f32, q), MF_READ(1, f32, weights), \
            MF_READ(2, u64, k_pages), MF_WRITE(3, f32, scores)) {                  \
    MF_THREAD;                                                                     \
    score_tiles<KEY>(t, p, q, weights, k_pages, scores);                           \
  }
MF_INDEX_SCORES(mma_index_scores, f32)
MF_INDEX_SCORES(mma_index_scores_f16, u16)
#undef MF_INDEX_SCORES

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
