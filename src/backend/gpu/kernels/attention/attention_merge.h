// Adds the parts of a query's softmax in order. Groups of their own have summed them.
#pragma once

#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The largest of the lanes up to this one.
MF_FN f32 largest_so_far(MF_T t, f32 largest) {
  MF_UNROLL
  for (u32 step = 1u; step < 32u; step *= 2u) {
    const f32 other = simd_shuffle(t, largest, t.lane >= step ? t.lane - step : t.lane);
    largest = mf_max(largest, other);
  }
  return largest;
}

/// Finds how each thread's part is added to those before it, whose largest score is `largest`.
/// Stores the factor of the sum before, the factor of the part, and the part's total times that.
/// Returns the largest score with these parts.
MF_FN f32 find_way(MF_T t, PartSum own, f32 largest) {
  MF_SHARED(f32) ways = MF_SHARED_AT(t, f32, t.index * 4u);
  MF_SHARED(f32) of_simds = MF_SHARED_AT(t, f32, kMergeParts * 12u);
  const f32 lanes = largest_so_far(t, own.largest);
  if (t.lane == 31u) of_simds[t.simd] = lanes;
  barrier(t);
  PartSum before = {largest, 0.0f};
  for (u32 i = 0u; i < t.simds; ++i) {
    const f32 other = of_simds[i];
    largest = mf_max(largest, other);
    if (i < t.simd) before.largest = mf_max(before.largest, other);
  }
  const f32 lane_before = simd_shuffle(t, lanes, t.lane > 0u ? t.lane - 1u : 0u);
  if (t.lane > 0u) before.largest = mf_max(before.largest, lane_before);
  const PartMerge merge = merge_parts(before, own);
  ways[0] = merge.keep;
  ways[kMergeParts] = merge.add;
  ways[2u * kMergeParts] = own.total * merge.add;
  return largest;
}

/// The columns of parts that a thread has: one column of every 16th part.
struct MergeColumns {
  f32 held[kMergeParts / kMergeStep];

  MF_FN_MEMBER void load(MF_T t, MF_GLOBAL(const f32) own, u32 stride, u32 count, bool exists) {
    MF_UNROLL
    for (u32 i = 0u; i < kMergeParts / kMergeStep; ++i) {
      const u32 part = i * kMergeStep + t.index / kMergeColumns;
      held[i] = 0.0f;
      if (part < count && exists) held[i] = own[static_cast<u64>(part) * stride];
    }
  }
  /// Multiplies columns by their parts' factors and stores them in shared memory, where a column's
  /// parts lie side by side. Columns of a part that the query does not see need not have been
  /// written.
  MF_FN_MEMBER void store(MF_T t, u32 count) const {
    MF_SHARED(f32) adds = MF_SHARED_AT(t, f32, kMergeParts * 4u);
    MF_SHARED(f32)
    to = MF_SHARED_AT(t, f32, kMergeColumnsAt * 4u) + t.index % kMergeColumns * kMergeColumnWords;
    MF_UNROLL
    for (u32 i = 0u; i < kMergeParts / kMergeStep; ++i) {
      const u32 part = i * kMergeStep + t.index / kMergeColumns;
      if (i * kMergeStep >= count) continue;
      const f32 add = adds[part];
      to[part] = add != 0.0f ? held[i] * add : 0.0f;
    }
  }
};

/// sum * keep + part, part after part: all that has to wait for what is before it.
MF_FN f32 add_parts(f32 sum, u32 count, MF_SHARED(f32) keeps, MF_SHARED(f32) parts) {
  MF_ROLLED
  for (u32 begin = 0u; begin < count; begin += kMergeStep) {
    F4 keep[kMergeStep / 4u];
    F4 part[kMergeStep / 4u];
    MF_UNROLL
    for (u32 i = 0u; i < kMergeStep / 4u; ++i) {
      keep[i] = load4(keeps + (begin + i * 4u));
      part[i] = load4(parts + (begin + i * 4u));
    }
    MF_UNROLL
    for (u32 i = 0u; i < kMergeStep; ++i) {
      sum = mf_fma(sum, keep[i / 4u].v[i % 4u], part[i / 4u].v[i % 4u]);
    }
  }
  return sum;
}

/// A thread's part and columns of the parts from `first` on.
struct MergeRound {
  PartSum own;
  MergeColumns columns;

  MF_FN_MEMBER void load(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) partials,
                         u64 index, u32 first, u32 c) {
    const u32 count = parts_of(p, first);
    own = no_sum();
    if (t.index < count) {
      MF_GLOBAL(const f32) sums = partials + partial_sums(p, index + first + t.index);
      own.largest = sums[0];
      own.total = sums[1];
    }
    columns.load(t, partials + (partial_columns(p, index + first) + c), p.partial_words, count,
                 c < p.v_head_dim);
  }
  static MF_FN_MEMBER u32 parts_of(MF_PARAMS(AttentionParams) p, u32 first) {
    const u32 left = p.num_parts - first;
    return left < kMergeParts ? left : static_cast<u32>(kMergeParts);
  }
};

/// Group x: 16 columns; y: a head; z: a query. 256 threads. Each lane of the first SIMD group adds
/// a column; the second SIMD group adds totals. Parts of which a launch before had others are added
/// to what it left.
MF_FITS(256, 4)
MF_KERNEL(attention_merge, AttentionParams, MF_WRITE(0, f32, partials), MF_READ(1, f32, sinks),
          MF_WRITE(2, f32, out), MF_READ(3, f32, gate)) {
  MF_THREAD;
  MF_SHARED(f32) keeps = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) totals = MF_SHARED_AT(t, f32, kMergeParts * 8u);
  MF_SHARED(f32) of_simds = MF_SHARED_AT(t, f32, kMergeParts * 12u);
  const u32 head = t.group.y;
  const u32 token = t.group.z;
  const u32 c = t.group.x * kMergeColumns + t.index % kMergeColumns;
  const u64 index = partial_index(p, token, head, 0u);
  MF_GLOBAL(f32) to = out + (token * p.out.token_stride + head * p.out.head_stride);
  f32 largest = -mf_infinity();
  f32 sum = 0.0f;
  MF_GLOBAL(const f32) parts_of_all = MF_CAST(const f32, partials);
  MergeRound round;
  round.load(t, p, parts_of_all, index, 0u, c);
  if (p.resumes != 0u) {
    MF_GLOBAL(f32) left = left_sum(p, partials, token, head, (p.resumes - 1u) % 2u);
    largest = left[0];
    if (t.simd == 0u && c < p.v_head_dim) sum = to[c];
    if (t.simd == 1u) sum = left[1];
  }
  MF_ROLLED
  for (u32 first = 0u; first < p.num_parts; first += kMergeParts) {
    const u32 count = MergeRound::parts_of(p, first);
    if (first > 0u) barrier(t);
    largest = find_way(t, round.own, largest);
    barrier(t);
    round.columns.store(t, count);
    barrier(t);
    if (first + kMergeParts < p.num_parts) {
      round.load(t, p, parts_of_all, index, first + kMergeParts, c);
    }
    if (t.simd == 0u) {
      MF_SHARED(f32)
      parts =
          MF_SHARED_AT(t, f32, kMergeColumnsAt * 4u) + t.lane % kMergeColumns * kMergeColumnWords;
      sum = add_parts(sum, count, keeps, parts);
    }
    if (t.simd == 1u) sum = add_parts(sum, count, keeps, totals);
  }
  if (t.index == 32u) of_simds[0] = sum;
  barrier(t);
  if (t.index >= kMergeColumns || c >= p.v_head_dim) return;
  const PartSum all = {largest, of_simds[0]};
  if (p.finishes == 0u) {
    to[c] = sum;
    if (c != 0u) return;
    MF_GLOBAL(f32) left = left_sum(p, partials, token, head, p.resumes % 2u);
    left[0] = all.largest;
    left[1] = all.total;
    return;
  }
  to[c] = finished(p, sum, finish_factor(p, all, sinks, token * p.sink_stride + head),
                   gates_of(p, gate, token, head), c);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
