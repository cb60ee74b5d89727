// The best candidates of a row in ascending order, ties to the lower one: their least score is
// found by halving, then SIMD groups write down what is not below it.
#pragma once

#include "backend/gpu/kernels/attention/select_params.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A number that rises with the score, which is a number.
MF_FN u32 score_order(f32 score) {
  const u32 bits = as_bits(score);
  return bits >> 31u != 0u ? ~bits : bits | 0x80000000u;
}

/// The sum of what the SIMD group's lanes have.
MF_FN u32 simd_total(MF_T t, u32 value) {
  for (u32 mask = 16u; mask > 0u; mask /= 2u) value += simd_shuffle_xor(t, value, mask);
  return value;
}

/// How many of a group's SIMD groups come before, and all: what each has is in shared memory.
struct GroupCount {
  u32 before;
  u32 all;
};
MF_FN GroupCount count_group(MF_T t, u32 own, MF_SHARED(u32) counts) {
  if (t.lane == 0u) counts[t.simd] = own;
  barrier(t);
  GroupCount count = {0u, 0u};
  for (u32 s = 0u; s < t.simds; ++s) {
    const u32 other = counts[s];
    count.before += s < t.simd ? other : 0u;
    count.all += other;
  }
  return count;
}

/// The candidates of a token at `position`, its last one among them.
MF_FN u32 candidates_at(MF_PARAMS(ChooseParams) p, u32 position) {
  return (position + p.whole) / p.unit + p.last;
}

/// Group x: a group of a token. A candidate outside those that the token chose before, ascending
/// and larger, gets the least score there is.
MF_KERNEL(mask_candidates, MaskParams, MF_WRITE(0, f32, scores), MF_READ(1, i32, chosen)) {
  MF_THREAD;
  const u32 token = t.group.x / p.choice.groups;
  const u32 position = position_of(t, p.choice, token);
  if (position < p.dense_end || position < p.choice.dense_end) return;
  const u32 candidates = candidates_at(p.choice, position);
  MF_GLOBAL(f32) row = scores + t.group.x * p.choice.score_stride;
  MF_GLOBAL(const i32) outer = chosen + static_cast<u64>(token) * p.outer_most;
  for (u32 c = t.index; c < candidates; c += t.threads) {
    const i32 own = static_cast<i32>(c / p.outer_unit);
    u32 low = 0u;
    u32 high = p.outer_most;
    while (low < high) {
      const u32 middle = low + (high - low) / 2u;
      if (outer[middle] < own) {
        low = middle + 1u;
      } else {
        high = middle;
      }
    }
    if (low == p.outer_most || outer[low] != own) row[c] = as_float(0xff800000u);
  }
}

/// Group x: a group of a token. Shared: two words a SIMD group, twice.
MF_KERNEL(choose_best, ChooseParams, MF_READ(0, f32, scores), MF_WRITE(1, i32, ids)) {
  MF_THREAD;
  MF_SHARED(u32) first_counts = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(u32) second_counts = first_counts + t.simds;
  const u32 position = position_of(t, p, t.group.x / p.groups);
  if (position < p.dense_end) return;
  const u32 n = candidates_at(p, position) - p.recent;
  const u32 most = p.most - p.recent;
  MF_GLOBAL(const f32) row = scores + t.group.x * p.score_stride;
  MF_GLOBAL(i32) to = ids + static_cast<u64>(t.group.x) * p.most;
  for (u32 i = t.index; i < p.recent; i += t.threads) {
    to[most + i] = static_cast<i32>(n + i);
  }
  if (most == 0u) return;
  u32 low = 0u;
  u32 high = 0xffffffffu;
  u32 turn = 0u;
  while (low < high) {
    const u32 middle = low + (high - low) / 2u + 1u;
    u32 own = 0u;
    for (u32 i = t.index; i < n; i += t.threads) own += score_order(row[i]) >= middle ? 1u : 0u;
    // Two places take turns, so that one barrier is enough.
    const u32 count =
        count_group(t, simd_total(t, own), turn % 2u == 0u ? first_counts : second_counts).all;
    ++turn;
    if (count >= most) low = middle;
    if (count == most) high = middle;
    if (count < most) high = middle - 1u;
  }
  barrier(t);
  const u32 part = ((n + 31u) / 32u + t.simds - 1u) / t.simds * 32u;
  const u32 first = t.simd * part;
  const u32 end = first + part < n ? first + part : n;
  u32 above = 0u;
  u32 equal = 0u;
  for (u32 i = first + t.lane; i < end; i += 32u) {
    const u32 order = score_order(row[i]);
    above += order > low ? 1u : 0u;
    equal += order == low ? 1u : 0u;
  }
  const GroupCount aboves = count_group(t, simd_total(t, above), first_counts);
  const GroupCount equals = count_group(t, simd_total(t, equal), second_counts);
  const u32 wanted = most - aboves.all;  // of those that are equal
  u32 above_before = aboves.before;
  u32 equal_before = equals.before;
  const u32 lower_lanes = (1u << t.lane) - 1u;
  for (u32 base = first; base < end; base += 32u) {
    const u32 i = base + t.lane;
    const u32 order = i < end ? score_order(row[i]) : 0u;
    const bool is_above = i < end && order > low;
    const bool is_equal = i < end && order == low;
    const u32 above_lanes = simd_ballot(t, is_above);
    const u32 equal_lanes = simd_ballot(t, is_equal);
    const u32 equal_at = equal_before + count_bits(equal_lanes & lower_lanes);
    const u32 above_at = above_before + count_bits(above_lanes & lower_lanes);
    if (is_above || (is_equal && equal_at < wanted)) {
      to[above_at + (equal_at < wanted ? equal_at : wanted)] = static_cast<i32>(i);
    }
    above_before += count_bits(above_lanes);
    equal_before += count_bits(equal_lanes);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
