// The down products of single tokens and the sum of their slots, with up to two addends, in one
// launch. Rows have one split. A group has 16 rows of all slots of a token and of the shared
// expert; each of its SIMD groups has the rows of one of them. So the sum, in router order, needs
// no launch of its own.
#pragma once

#include "backend/gpu/kernels/experts/mma_experts_t1.h"
#include "backend/gpu/kernels/experts/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_product.h"
#include "backend/gpu/kernels/matmul/mma_walk.h"
#include "backend/gpu/kernels/matmul/weights.h"
#include "backend/gpu/kernels/norm/slot_sum.h"
#include "backend/gpu/kernels/route/group_choice.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The expert of the rank of the SIMD group's number, the shared one behind the last rank; before
/// the inputs are awaited, as for mma_down_t1, or right behind. Has barriers.
MF_FN MmaSlot find_down_expert(MF_T t, MF_PARAMS(MmaDownSumParams) p, MmaChoice choice) {
  MF_PARAMS(MmaExpertsOneParams) s = p.experts;
  const u32 top_k = s.expert.top_k;
  const bool routed = t.simd < top_k;
  MF_SHARED(u32) route_shared = route_words(t, s);
  MmaSlot slot;
  slot.is_shared = t.simd == top_k && p.has_shared != 0u;
  slot.exists = slot.is_shared;
  slot.matrices[0] = s.shared[0];
  slot.matrices[1] = s.shared[1];
  u32 id = 0u;
  if (s.route.thread_experts != 0u) {
    route_choose(t, s.route, top_k, route_shared, choice.logits + t.group.y * s.route.logits_stride,
                 choice.correction);
  }
  if (p.late != 0u) await_inputs(t);
  barrier(t);
  if (routed) {
    id = s.route.thread_experts != 0u ? route_chosen(route_shared, t.simd)
                                      : static_cast<u32>(choice.ids[t.group.y * top_k + t.simd]);
  }
  if (routed) find_expert(s, &slot, id, choice, 2u, 1u);
  return slot;
}

/// A row of one split, on its way to a SIMD group's part of shared memory.
struct MmaSplitRow {
  f32 values[kMmaSplit / 32u];

  MF_FN_MEMBER void load(MF_T t, MF_GLOBAL(const f32) x, u32 cols) {
    MF_UNROLL
    for (u32 i = 0u; i < kMmaSplit / 256u; ++i) {
      load_octet(values + i * 8u, x, (i * 32u + t.lane) * 8u, cols, 1u);
    }
  }
  MF_FN_MEMBER void store(MF_T t, MmaOneShared shared) const {
    MF_UNROLL
    for (u32 i = 0u; i < kMmaSplit / 256u; ++i) {
      store_mma_octet(t, values + i * 8u, t.simd * (kMmaSplit / 8u) + i * 32u + t.lane, shared);
    }
  }
};

/// A row of the slots' values in shared memory, by one SIMD group whose lanes have the weights of
/// the ranks.
struct SharedSlots {
  typedef f32 Value;
  MF_SHARED(f32) values;
  f32 own_weight;

  MF_FN_MEMBER Value load(MF_T, u32 rank) const { return values[rank * kMmaRows]; }
  MF_FN_MEMBER f32 weight(MF_T t, u32 rank) const { return simd_shuffle(t, own_weight, rank); }
  MF_FN_MEMBER void add(MF_LOCAL(Value) sum, f32 weight, Value value) const {
    *sum = mf_fma(weight, value, *sum);
  }
};

/// The addends of a row's slots, and the places of its sums.
struct MmaDownSums {
  MF_GLOBAL(const f32) addend1;
  MF_GLOBAL(const f32) addend2;
  MF_GLOBAL(f32) sum0;
  MF_GLOBAL(f32) sum1;
  MF_GLOBAL(f32) sum2;
};

/// The sums of a row in each of the lower 16 lanes of a SIMD group, from its values in shared
/// memory; `more` as below.
MF_FN void store_down_sums(MF_T t, MF_PARAMS(MmaDownSumParams) p, MF_SHARED(f32) values, f32 weight,
                           f32 more, bool has_row, MmaDownSums sums, u64 at) {
  const u32 top_k = p.experts.expert.top_k;
  const SharedSlots slots = {values, weight};
  f32 sum = 0.0f;
  sum_slots<kMmaDownRanks>(t, &slots, top_k, &sum);
  if (p.shared_addend == t.lane / kMmaRows + 1u) more = values[top_k * kMmaRows];
  const f32 last = simd_shuffle_xor(t, more, 16u);
  if (!has_row || t.lane >= kMmaRows) return;
  sums.sum0[at] = sum;
  if (p.adds > 0u) sums.sum1[at] = sum + more;
  if (p.adds > 1u) sums.sum2[at] = sum + more + last;
}

/// The SIMD group's expert, which exists; rows begin on 16-byte boundaries.
template <u32 BITS>
MF_FN MmaPart<BITS> down_part(MF_T t, MF_PARAMS(MmaExpertParams) p, MmaSlot slot) {
  MmaPart<BITS> part = mma_down_part<BITS>(t, p, slot.matrices[0]);
  part.has_wide_rows();
  return part;
}

template <u32 BITS>
MF_FN void mma_down_and_sum(MF_T t, MF_PARAMS(MmaDownSumParams) p, MmaChoice choice,
                            MF_GLOBAL(const f32) weights, MF_GLOBAL(const f32) x,
                            MF_GLOBAL(f32) out, MmaSharedRows shared, MmaDownSums sums) {
  MF_PARAMS(MmaExpertParams) e = p.experts.expert;
  const u32 count = e.top_k + p.has_shared;
  const MmaOneShared staged = mma_one_shared(e.walk, count);
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, staged.parts * 4u);
  store_mma_constants<BITS>(t, e.matrix.bits, staged);
  const MmaSlot slot = find_down_expert(t, p, choice);
  const u32 token = t.group.y;
  const u32 row = t.group.x * kMmaRows + t.lane % kMmaRows;
  const bool has_row = row < e.matrix.rows;
  const bool finishes = t.simd < count && has_row && t.lane < kMmaRows;
  const u32 place = e.walk.begin + t.simd * MmaPart<BITS>::words(e.walk);
  if (slot.exists) down_part<BITS>(t, e, slot).issue(t, place, t.group.x, 0u);
  copies_commit(t);
  const f32 bias =
      finishes && slot.exists ? bias_at(t, slot.matrices[0].bias, row, e.bias_format) : 0.0f;
  if (p.late == 0u) await_inputs(t);
  const u64 slot_at = static_cast<u64>(token) * e.top_k + t.simd;
  const u64 shared_at = token * p.experts.shared_x_stride;
  MmaSplitRow own;
  own.load(t, slot.is_shared ? shared.x + shared_at : x + slot_at * e.x_stride,
           slot.exists ? e.cols : 0u);
  const u64 at = static_cast<u64>(token) * e.matrix.rows + row;
  const bool has_gate = slot.is_shared && p.experts.has_shared_gate != 0u;
  f32 factor = has_gate ? shared.gate[token] : 0.0f;  // or the weight of the lane's rank
  f32 more = 0.0f;  // of the first addend in the lower lanes, of the second in the upper
  if (t.simd == 0u) {
    if (t.lane < e.top_k) factor = weights[token * e.top_k + t.lane];
    const u32 number = t.lane / kMmaRows + 1u;
    if (has_row && number <= p.adds && number != p.shared_addend) {
      more = number == 1u ? sums.addend1[at] : sums.addend2[at];
    }
  }
  if (slot.exists) {
    own.store(t, staged);
    if (has_gate) factor = sigmoid(factor);
    copies_wait<0u>(t);
    simd_barrier(t);
    down_part<BITS>(t, e, slot).multiply(t, place, t.simd, staged, parts + t.simd * kMmaRows);
    simd_barrier(t);
  }
  if (finishes) {
    // The value of an expert that was ready before is in memory.
    MF_GLOBAL(f32) to = out + slot_at * e.out_stride;
    if (slot.is_shared) to = shared.out + token * p.experts.shared_out_stride;
    MF_SHARED(f32) held = parts + (t.simd * kMmaRows + t.lane);
    f32 value = slot.exists ? 0.0f + held[0] + bias : to[row];
    if (has_gate) value = value * factor;
    if (slot.exists) to[row] = value;
    held[0] = value;
  }
  barrier(t);
  if (t.simd != 0u) return;
  store_down_sums(t, p, parts + t.lane % kMmaRows, factor, more, has_row, sums, at);
}

// Group x: 16 rows; y: a token. A SIMD group a slot, and 256 threads at least where they choose the
// routes. Few registers, so that groups of this launch find room beside those of gate and up.
#define MF_MMA_DOWN_SUM(name, BITS, fits)                                                        \
  MF_FITS(kMmaDownRanks * 32, fits)                                                              \
  MF_KERNEL(name, MmaDownSumParams, MF_READ(0, i32, ids), MF_READ(1, f32, weights),              \
            MF_READ(2, f32, logits), MF_READ(3, f32, correction), MF_READ(4, u32, map),          \
            MF_READ(5, u64, entries), MF_READ(6, f32, x), MF_WRITE(7, f32, out),                 \
            MF_READ(8, f32, shared_x), MF_READ(9, f32, shared_gate),                             \
            MF_WRITE(10, f32, shared_out), MF_READ(11, f32, addend1), MF_READ(12, f32, addend2), \
            MF_WRITE(13, f32, sum0), MF_WRITE(14, f32, sum1), MF_WRITE(15, f32, sum2)) {         \
    MF_THREAD_EARLY;                                                                             \
    const MmaChoice choice = {ids, logits, correction, map, entries};                            \
    const MmaSharedRows shared = {shared_x, shared_gate, shared_out};                            \
    const MmaDownSums sums = {addend1, addend2, sum0, sum1, sum2};                               \
    mma_down_and_sum<BITS>(t, p, choice, weights, x, out, shared, sums);                         \
  }
MF_MMA_DOWN_SUM(mma_down_sum_w4_t1, 4u, 2)
MF_MMA_DOWN_SUM(mma_down_sum_w8_t1, 8u, 1)
MF_MMA_DOWN_SUM(mma_down_sum_ggml_t1, kMmaGgml, 1)
#define MF_MMA_KNOWN_SUM(X, type) MF_MMA_DOWN_SUM(mma_down_sum_##type##_t1, kGgml_##type, 2)
MF_GGML_ONE_TYPES(MF_MMA_KNOWN_SUM, )
#undef MF_MMA_KNOWN_SUM
#undef MF_MMA_DOWN_SUM

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
