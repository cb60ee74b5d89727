// Softmax in parts: a query's keys are summed in parts at absolute positions, and parts are added
// in order, by the group that has them all or by attention_merge. Scores are exponents of 2.
#pragma once

#include "backend/gpu/kernels/attention/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

MF_FN f32 log2_of_e() { return 1.44269504f; }

/// A row of a group: its query, and the positions [begin, end) it sees; none if it does not exist.
struct QueryRow {
  u32 token;
  u32 head;
  u32 begin;
  u32 end;
};

/// The first position that one sees which is the last of [0, end).
MF_FN u32 first_seen(MF_PARAMS(AttentionParams) p, u32 end) {
  if (p.window == 0u || end == 0u) return 0u;
  if (p.chunked != 0u) return (end - 1u) / p.window * p.window;
  return end > p.window ? end - p.window : 0u;
}

/// The sequence of a token of those of a step that has a token of each of several, or the one of
/// all tokens: the position of one of them, and the pages.
struct TokenSequence {
  u32 token;
  u32 position;
  u32 num_pages;
  MF_GLOBAL(const u64) k_pages;
  MF_GLOBAL(const u64) v_pages;
};
template <typename Params>
MF_FN TokenSequence sequence_of(MF_T t, MF_PARAMS(Params) p, MF_GLOBAL(const u64) k_pages,
                                MF_GLOBAL(const u64) v_pages, u32 token) {
  if (p.lengths == 0u) {
    const TokenSequence all = {0u, p.begin, p.num_pages, k_pages, v_pages};
    return all;
  }
  MF_GLOBAL(const u64) words = k_pages + token * kSequenceWords;
  MF_GLOBAL(const u64) lengths = MF_AT(t, const u64, p.lengths);
  const TokenSequence own = {token, static_cast<u32>(lengths[token]), static_cast<u32>(words[2]),
                             MF_AT(t, const u64, words[0]), MF_AT(t, const u64, words[1])};
  return own;
}

/// The position of one of its tokens.
MF_FN u32 position_in(TokenSequence sequence, u32 token) {
  return sequence.position + (token - sequence.token);
}

/// The position of one of these tokens, where nothing else is wanted of its sequence.
template <typename Params>
MF_FN u32 position_of(MF_T t, MF_PARAMS(Params) p, u32 token) {
  if (p.lengths == 0u) return p.begin + token;
  return static_cast<u32>(MF_AT(t, const u64, p.lengths)[token]);
}

/// The rows of a group, which are of one sequence: from `first` on, up to `end`.
struct GroupRows {
  u32 first;
  u32 end;
  TokenSequence sequence;
};
/// Number `group` of the groups of up to `size` rows.
MF_FN GroupRows group_rows(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) k_pages,
                           MF_GLOBAL(const u64) v_pages, u32 group, u32 size) {
  u32 token = 0u;
  u32 first = group * size;
  u32 end = p.tokens * p.heads_per_kv_head;
  if (p.lengths != 0u) {
    const u32 groups = (p.heads_per_kv_head + size - 1u) / size;
    token = group / groups;
    first = token * p.heads_per_kv_head + (group - token * groups) * size;
    end = (token + 1u) * p.heads_per_kv_head;
  }
  const GroupRows rows = {first, end, sequence_of(t, p, k_pages, v_pages, token)};
  return rows;
}
MF_FN QueryRow query_row(MF_T t, MF_PARAMS(AttentionParams) p, GroupRows rows, u32 row) {
  QueryRow r;
  r.token = row / p.heads_per_kv_head;
  r.head = t.group.y * p.heads_per_kv_head + (row - r.token * p.heads_per_kv_head);
  r.end = row < rows.end ? rows.sequence.position + (r.token - rows.sequence.token) + 1u : 0u;
  r.begin = first_seen(p, r.end);
  return r;
}
/// The same where all tokens are of one sequence.
MF_FN QueryRow query_row(MF_T t, MF_PARAMS(AttentionParams) p, u32 row) {
  QueryRow r;
  r.token = row / p.heads_per_kv_head;
  r.head = t.group.y * p.heads_per_kv_head + (row - r.token * p.heads_per_kv_head);
  r.end = r.token < p.tokens ? p.begin + r.token + 1u : 0u;
  r.begin = first_seen(p, r.end);
  return r;
}

/// A row's softmax: of one part, or of all so far.
struct PartSum {
  f32 largest;
  f32 total;
};
MF_FN PartSum no_sum() {
  const PartSum sum = {-mf_infinity(), 0.0f};
  return sum;
}
/// The score that weights are relative to; a part may have no keys.
MF_FN f32 measure_of(f32 largest) { return largest == -mf_infinity() ? 0.0f : largest; }

/// Adds a part to those before it and says how: old * keep + new * add.
struct PartMerge {
  PartSum all;
  f32 keep;
  f32 add;
};
MF_FN PartMerge merge_parts(PartSum all, PartSum sum) {
  PartMerge m;
  const f32 largest = mf_max(all.largest, sum.largest);
  const f32 measure = measure_of(largest);
  m.keep = mf_exp2(all.largest - measure);
  m.add = mf_exp2(sum.largest - measure);
  m.all.largest = largest;
  m.all.total = mf_fma(all.total, m.keep, sum.total * m.add);
  return m;
}

/// Where a part of a query is kept until all are merged, in words: behind the sums that launches
/// leave each other its columns, and behind all columns its largest score and its total.
MF_FN u64 partial_index(MF_PARAMS(AttentionParams) p, u32 token, u32 head, u32 part) {
  return (static_cast<u64>(token) * p.heads + head) * p.num_parts + part;
}
MF_FN u64 partial_columns(MF_PARAMS(AttentionParams) p, u64 index) {
  return static_cast<u64>(p.tokens) * p.heads * kLeftWords + index * p.partial_words;
}
MF_FN u64 partial_sums(MF_PARAMS(AttentionParams) p, u64 index) {
  return partial_columns(p, partial_index(p, p.tokens, 0u, 0u)) + index * 2u;
}

/// Where a launch that has some of a row's keys leaves its sum for the one that goes on with it,
/// `second`: for every other launch, where several groups read what the one before left.
MF_FN MF_GLOBAL(f32) left_sum(MF_PARAMS(AttentionParams) p, MF_GLOBAL(f32) partials, u32 token,
                              u32 head, u32 second) {
  const u64 rows = static_cast<u64>(p.tokens) * p.heads;
  return partials + (second * rows + static_cast<u64>(token) * p.heads + head) * 2u;
}
MF_FN void leave_sum(MF_PARAMS(AttentionParams) p, MF_GLOBAL(f32) partials, QueryRow row,
                     PartSum sum) {
  MF_GLOBAL(f32) to = left_sum(p, partials, row.token, row.head, 0u);
  to[0] = sum.largest;
  to[1] = sum.total;
}
MF_FN PartSum resume_sum(MF_PARAMS(AttentionParams) p, MF_GLOBAL(f32) partials, QueryRow row) {
  MF_GLOBAL(f32) from = left_sum(p, partials, row.token, row.head, 0u);
  const PartSum sum = {from[0], from[1]};
  return sum;
}

/// Leaves a part without keys of a row, which one thread does: its columns may be any.
MF_FN void leave_no_part(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(f32) partials,
                         QueryRow row, bool leads) {
  if (!leads || row.end == 0u) return;
  MF_GLOBAL(f32)
  sums = partials + partial_sums(p, partial_index(p, row.token, row.head, t.group.z));
  sums[0] = -mf_infinity();
  sums[1] = 0.0f;
}

/// The bias of the score of a key so many positions before its query; `row` is the query's.
MF_FN f32 bias_of(MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) row, u32 distance) {
  return distance < p.bias_extent ? row[distance] * log2_of_e() : 0.0f;
}

/// The factor of a finished sum's columns. A sink takes its part of the denominator; `head` is its
/// number, of all heads of tokens that have sinks of their own.
MF_FN f32 finish_factor(MF_PARAMS(AttentionParams) p, PartSum sum, MF_GLOBAL(const f32) sinks,
                        u32 head) {
  const f32 sink = p.has_sinks != 0u ? sinks[head] * log2_of_e() : -mf_infinity();
  const f32 measure = measure_of(mf_max(sum.largest, sink));
  const f32 keep = mf_exp2(sum.largest - measure);
  return keep / mf_fma(sum.total, keep, mf_exp2(sink - measure)) * p.column_factor;
}

/// A finished column; the gate is what follows attention, in the same launch.
MF_FN MF_GLOBAL(const f32)
    gates_of(MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) gate, u32 token, u32 head) {
  return gate + (token * p.gate.token_stride + head * p.gate.head_stride);
}
MF_FN f32 finished(MF_PARAMS(AttentionParams) p, f32 sum, f32 factor, MF_GLOBAL(const f32) gates,
                   u32 column) {
  const f32 value = mf_fma(sum, factor, 0.0f);
  return p.has_gate != 0u ? value * sigmoid(gates[column]) : value;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
