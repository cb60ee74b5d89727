// Scores of candidates by index heads. A dot product goes over columns in order and heads are added
// in order, so a score depends on its query and its key alone.
#pragma once

#include "backend/gpu/kernels/attention/cached.h"
#include "backend/gpu/kernels/attention/select_params.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Columns c to c + 3 of a key; nothing past its end.
template <typename Stored>
MF_FN F4 index_key(MF_GLOBAL(const Stored) key, u32 c, u32 cols, u32 wide) {
  CachedFour<Stored> four;
  if (wide != 0u) {
    four.load(key, c, 0u);
    return four.numbers();
  }
  F4 numbers = {{0.0f, 0.0f, 0.0f, 0.0f}};
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    if (c + k < cols) numbers.v[k] = cached_number(key, c + k, 0u);
  }
  return numbers;
}

/// The queries of heads [first, first + kIndexHeads) of a group, zeros behind their columns.
MF_FN void stage_index_queries(MF_T t, MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(const f32) q,
                               u32 first, MF_SHARED(f32) queries) {
  const u32 left = p.heads - first;
  const u32 count = left < kIndexHeads ? left : static_cast<u32>(kIndexHeads);
  for (u32 i = t.index; i < count * p.stage_cols; i += t.threads) {
    const u32 c = i % p.stage_cols;
    queries[i] = c < p.head_dim ? q[(first + i / p.stage_cols) * p.q.head_stride + c] : 0.0f;
  }
}

/// Adds the heads from `first` on to a key's sum.
template <typename Stored>
MF_FN f32 add_index_heads(MF_PARAMS(IndexScoresParams) p, f32 sum, u32 first,
                          MF_SHARED(f32) queries, MF_GLOBAL(const Stored) key,
                          MF_GLOBAL(const f32) weights) {
  f32 dots[kIndexHeads];
  MF_UNROLL
  for (u32 i = 0u; i < kIndexHeads; ++i) dots[i] = 0.0f;
  MF_ROLLED
  for (u32 c = 0u; c < p.stage_cols; c += 4u) {
    const F4 four = index_key<Stored>(key, c, p.head_dim, p.wide);
    MF_UNROLL
    for (u32 i = 0u; i < kIndexHeads; ++i) {
      if (first + i >= p.heads) continue;
      const F4 query = load4(queries + (i * p.stage_cols + c));
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) dots[i] = mf_fma(query.v[k], four.v[k], dots[i]);
    }
  }
  MF_UNROLL
  for (u32 i = 0u; i < kIndexHeads; ++i) {
    if (first + i >= p.heads) continue;
    const f32 positive = dots[i] < 0.0f ? 0.0f : dots[i];
    if (p.has_weights == 0u) {
      sum = sum + (p.relu != 0u ? positive : dots[i]);
    } else {
      sum = mf_fma(weights[first + i], positive, sum);
    }
  }
  return sum;
}

/// The best of each candidate's keys, of which there are `count` scores.
MF_FN void best_of_units(MF_T t, MF_PARAMS(IndexScoresParams) p, MF_SHARED(f32) found, u32 count,
                         MF_GLOBAL(f32) to) {
  for (u32 first = t.index * p.unit; first < count; first += t.threads * p.unit) {
    f32 best = found[first];
    for (u32 i = 1u; i < p.unit && first + i < count; ++i) best = mf_max(best, found[first + i]);
    to[first / p.unit] = best;
  }
}

/// Keys of a token's sequence that a group of threads scores by the heads from `head` on, up to the
/// last that the token sees; none if it does not choose.
struct IndexSpan {
  TokenSequence sequence;
  u32 token;
  u32 head;
  u32 begin;
  u32 end;

  MF_FN_MEMBER bool is_empty() const { return begin >= end; }
  MF_FN_MEMBER MF_GLOBAL(const f32)
      queries(MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(const f32) q) const {
    return q + (token * p.q.token_stride + head * p.q.head_stride);
  }
  MF_FN_MEMBER MF_GLOBAL(const f32)
      factors(MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(const f32) weights) const {
    return p.has_weights != 0u ? weights + (token * p.weight_stride + head) : weights;
  }
  MF_FN_MEMBER MF_GLOBAL(f32)
      scores(MF_T t, MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(f32) scores) const {
    return scores + (static_cast<u64>(token) * p.groups + t.group.z) * p.score_stride;
  }
};
MF_FN IndexSpan index_span(MF_T t, MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(const u64) k_pages) {
  const u32 token = t.group.y;
  const TokenSequence sequence = sequence_of(t, p, k_pages, k_pages, token);
  const u32 position = position_in(sequence, token);
  const u32 seen = position < p.dense_end ? 0u : (position + 1u) / p.key_tokens;
  const u32 begin = t.group.x * p.span;
  const u32 end = begin + p.span < seen ? begin + p.span : seen;
  const IndexSpan span = {sequence, token, t.group.z * p.heads, begin, end};
  return span;
}

/// Leaves the score of key `number` of a span, of candidates of one key or of several.
MF_FN void leave_score(MF_PARAMS(IndexScoresParams) p, IndexSpan span, u32 number, f32 sum,
                       MF_SHARED(f32) found, MF_GLOBAL(f32) to) {
  // No negative zeros, which are equal to zero; what is no number is as high as infinity.
  sum = sum == sum ? sum + 0.0f : mf_infinity();
  if (p.unit == 1u) {
    to[number] = sum;
  } else {
    found[number - span.begin] = sum;
  }
}

/// Group x: a span of keys; y: a token; z: a group of heads. kIndexThreads threads. Shared: the
/// queries of kIndexHeads heads; the scores of a span, where candidates have several keys.
template <typename Stored>
MF_FN void score_candidates(MF_T t, MF_PARAMS(IndexScoresParams) p, MF_GLOBAL(const f32) q,
                            MF_GLOBAL(const f32) weights, MF_GLOBAL(const u64) k_pages,
                            MF_GLOBAL(f32) scores) {
  MF_SHARED(f32) queries = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) found = queries + kIndexHeads * p.stage_cols;
  const IndexSpan span = index_span(t, p, k_pages);
  if (span.is_empty()) return;
  MF_GLOBAL(const f32) own = span.queries(p, q);
  MF_GLOBAL(const f32) factors = span.factors(p, weights);
  MF_GLOBAL(f32) to = span.scores(t, p, scores);
  const TokenSequence sequence = span.sequence;
  for (u32 base = span.begin; base < span.end; base += t.threads) {
    const u32 number = base + t.index;
    const u32 at = number < span.end ? number : span.end - 1u;
    MF_GLOBAL(const Stored)
    key = MF_AT(t, const Stored, sequence.k_pages[at / p.page_keys % sequence.num_pages]) +
          at % p.page_keys * p.page_stride;
    f32 sum = 0.0f;
    for (u32 first = 0u; first < p.heads; first += kIndexHeads) {
      barrier(t);
      stage_index_queries(t, p, own, first, queries);
      barrier(t);
      sum = add_index_heads<Stored>(p, sum, first, queries, key, factors);
    }
    if (number < span.end) leave_score(p, span, number, sum, found, to);
  }
  if (p.unit == 1u) return;
  barrier(t);
  best_of_units(t, p, found, span.end - span.begin, to + span.begin / p.unit);
}

#define MF_INDEX_SCORES(name, KEY)                                                 \
  MF_KERNEL(name, IndexScoresParams, MF_READ(0, f32, q), MF_READ(1, f32, weights), \
            MF_READ(2, u64, k_pages), MF_WRITE(3, f32, scores)) {                  \
    MF_THREAD;                                                                     \
    score_candidates<KEY>(t, p, q, weights, k_pages, scores);                      \
  }
MF_INDEX_SCORES(index_scores, f32)
MF_INDEX_SCORES(index_scores_f16, u16)
#undef MF_INDEX_SCORES

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
