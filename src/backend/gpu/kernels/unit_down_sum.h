// The down products of single tokens with the sum of the slots and what is added to it: a group has
// 16 rows of all slots of a token and of the shared expert, a SIMD group a split of the columns of
// one of them. So the sum, in router order, needs no launch of its own.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// What a SIMD group has of a token's slots: a split of the expert of one rank. The shared expert
/// comes behind the last rank, and behind that nothing.
struct UnitDownItem {
  u32 rank;
  u32 split;
  u32 count;  // of all items
  bool is_any;
};

MF_FN UnitDownItem unit_down_item(MF_T t, MF_PARAMS(UnitDownSumParams) p) {
  const u32 splits = p.experts.expert.splits;
  UnitDownItem item;
  item.rank = t.simd >> splits_shift(splits);
  item.split = t.simd & (splits - 1u);
  item.count = (p.experts.expert.top_k + p.has_shared) * splits;
  item.is_any = t.simd < item.count;
  return item;
}

/// The expert of the SIMD group's rank, before the inputs are awaited, as for unit_down_one.
MF_FN UnitSlot find_down_expert(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, UnitDownItem item,
                                u32 route_begin, MF_GLOBAL(const i32) ids,
                                MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction,
                                MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries) {
  const u32 top_k = p.expert.top_k;
  const bool routed = item.rank < top_k;
  MF_SHARED(u32) route_shared = MF_SHARED_AT(t, u32, route_begin * 4u);
  UnitSlot slot;
  slot.is_shared = item.is_any && !routed;
  slot.exists = slot.is_shared;
  slot.matrices[0] = p.shared[0];
  slot.matrices[1] = p.shared[1];
  u32 id = 0u;
  if (p.route.thread_experts != 0u) {
    route_prepare(t, p.route, top_k, route_shared, logits + t.group.y * p.route.logits_stride,
                  correction);
    barrier(t);
    if (routed) id = route_rank(t, p.route, top_k, item.rank, route_shared);
  } else if (routed) {
    id = static_cast<u32>(ids[t.group.y * top_k + item.rank]);
  }
  if (routed) find_expert(p, &slot, id, map, entries, 2u, 1u);
  return slot;
}

/// Split `split` of a row as one of `count`, by one SIMD group.
MF_FN void stage_unit_split(MF_T t, MF_GLOBAL(const f32) x, u32 split, u32 count, u32 cols,
                            u32 wide) {
  MF_UNROLL
  for (u32 i = 0u; i < kUnitSplit / 8u; i += 32u) {
    const u32 o = i + t.lane;
    stage_unit_octet(t, x, split * kUnitSplit + o * 8u, t.simd * (kUnitSplit / 8u) + o, count, cols,
                     wide);
  }
}

/// The sum of the slots' values in shared memory, one rank every `step`, by one SIMD group whose
/// lanes have the weights of the ranks.
MF_FN f32 sum_of_slots(MF_T t, MF_SHARED(f32) values, u32 step, u32 top_k, f32 weight) {
  f32 held[kUnitDownItems];
  MF_UNROLL
  for (u32 i = 0u; i < kUnitDownItems; ++i) held[i] = i < top_k ? values[i * step] : 0.0f;
  f32 sum = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < kUnitDownItems; ++i) {
    if (i < top_k) sum = mf_fma(simd_shuffle(t, weight, i), held[i], sum);
  }
  return sum;
}

/// A row's value for a slot, from the sums of its splits, to memory and to the first of these. That
/// of an expert that was ready before is in memory.
MF_FN void finish_down_row(MF_PARAMS(UnitExpertParams) p, bool exists, f32 bias, bool has_gate,
                           f32 gate, MF_SHARED(f32) parts, MF_GLOBAL(f32) to) {
  f32 value = 0.0f;
  if (exists) {
    value = add_unit_splits(parts, 0.0f, p.splits, 0u, p.cols) + bias;
    if (has_gate) value = value * sigmoid(gate);
    to[0] = value;
  } else {
    value = to[0];
  }
  parts[0] = value;
}

template <u32 BITS>
MF_FN void unit_down_and_sum(MF_T t, MF_PARAMS(UnitDownSumParams) p, MF_GLOBAL(const i32) ids,
                             MF_GLOBAL(const f32) weights, MF_GLOBAL(const f32) logits,
                             MF_GLOBAL(const f32) correction, MF_GLOBAL(const u32) map,
                             MF_GLOBAL(const u64) entries, MF_GLOBAL(const f32) x,
                             MF_GLOBAL(f32) out, MF_GLOBAL(const f32) shared_x,
                             MF_GLOBAL(const f32) shared_gate, MF_GLOBAL(f32) shared_out,
                             MF_GLOBAL(const f32) addend1, MF_GLOBAL(const f32) addend2,
                             MF_GLOBAL(f32) sum0, MF_GLOBAL(f32) sum1, MF_GLOBAL(f32) sum2) {
  MF_PARAMS(UnitExpertParams) e = p.experts.expert;
  const UnitDownItem item = unit_down_item(t, p);
  const u32 parts_begin = unit_one_shared(item.count).parts;
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, parts_begin * 4u);
  const UnitSlot slot = find_down_expert(t, p.experts, item, parts_begin + item.count * kUnitRows,
                                         ids, logits, correction, map, entries);
  const u32 token = t.group.y;
  const u32 row = t.group.x * kUnitRows + t.lane % kUnitRows;
  const bool has_row = row < e.matrix.rows;
  const bool finishes = item.is_any && item.split == 0u && has_row && t.lane < kUnitRows;
  const UnitPart<BITS> part = unit_expert_part<BITS>(
      t, e, slot.matrices[0], slot.exists ? t.group.x * kUnitRows : e.matrix.rows, item.split);
  f32 bias = 0.0f;
  part.issue(t, 0u);
  if (slot.exists) {
    if (finishes) bias = bias_at(t, slot.matrices[0].bias, row, e.bias_format);
  }
  await_inputs(t);
  const u64 at = static_cast<u64>(token) * e.matrix.rows + row;
  f32 weight = 0.0f;  // of the rank of the lane's number
  f32 more = 0.0f;    // of the first addend in the lower lanes, of the second in the upper
  if (t.simd == 0u) {
    if (t.lane < e.top_k) weight = weights[token * e.top_k + t.lane];
    const u32 number = t.lane / kUnitRows + 1u;
    if (has_row && number <= p.adds && number != p.shared_addend) {
      more = number == 1u ? addend1[at] : addend2[at];
    }
  }
  const u64 slot_at = static_cast<u64>(token) * e.top_k + item.rank;
  f32 openness = 0.0f;
  const bool has_gate = slot.is_shared && p.experts.has_shared_gate != 0u;
  if (finishes && has_gate) openness = shared_gate[token];
  if (item.is_any) {
    MF_GLOBAL(const f32)
    from = slot.is_shared ? shared_x + token * p.experts.shared_x_stride : x + slot_at * e.x_stride;
    stage_unit_split(t, from, item.split, item.count, slot.exists ? e.cols : 0u, e.wide);
    copies_wait<0u>(t);
    simd_barrier(t);
    part.multiply(t, 0u, t.simd, item.count, parts + t.simd * kUnitRows);
  }
  if (e.splits > 1u) barrier(t);
  simd_barrier(t);
  if (finishes) {
    MF_GLOBAL(f32)
    to = slot.is_shared ? shared_out + token * p.experts.shared_out_stride
                        : out + slot_at * e.out_stride;
    finish_down_row(e, slot.exists, bias, has_gate, openness, parts + (t.simd * kUnitRows + t.lane),
                    to + row);
  }
  barrier(t);
  if (t.simd != 0u) return;
  const u32 step = e.splits * kUnitRows;
  MF_SHARED(f32) values = parts + t.lane % kUnitRows;
  const f32 sum = sum_of_slots(t, values, step, e.top_k, weight);
  if (p.shared_addend == t.lane / kUnitRows + 1u) more = values[e.top_k * step];
  const f32 last = simd_shuffle_xor(t, more, 16u);
  if (!has_row || t.lane >= kUnitRows) return;
  sum0[at] = sum;
  if (p.adds > 0u) sum1[at] = sum + more;
  if (p.adds > 1u) sum2[at] = sum + more + last;
}

// Group x: 16 rows; y: a token. A SIMD group an item, and 256 threads at least where they choose
// the routes. Few registers, so that groups of this launch find room beside those of gate and up.
#define MF_UNIT_DOWN_SUM(BITS, fits)                                                             \
  MF_FITS(kUnitDownItems * 32, fits)                                                             \
  MF_KERNEL(unit_down_sum##BITS, UnitDownSumParams, MF_READ(0, i32, ids),                        \
            MF_READ(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction),      \
            MF_READ(4, u32, map), MF_READ(5, u64, entries), MF_READ(6, f32, x),                  \
            MF_WRITE(7, f32, out), MF_READ(8, f32, shared_x), MF_READ(9, f32, shared_gate),      \
            MF_WRITE(10, f32, shared_out), MF_READ(11, f32, addend1), MF_READ(12, f32, addend2), \
            MF_WRITE(13, f32, sum0), MF_WRITE(14, f32, sum1), MF_WRITE(15, f32, sum2)) {         \
    MF_THREAD_EARLY;                                                                             \
    unit_down_and_sum<BITS##u>(t, p, ids, weights, logits, correction, map, entries, x, out,     \
                               shared_x, shared_gate, shared_out, addend1, addend2, sum0, sum1,  \
                               sum2);                                                            \
  }
MF_UNIT_DOWN_SUM(4, 2)
MF_UNIT_DOWN_SUM(8, 1)
#undef MF_UNIT_DOWN_SUM

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
