// The experts of single tokens on matrix units: a slot reads its expert by itself, and so does each
// token the shared expert, whose weights are known before anything else is there. Where routes have
// not been chosen yet each SIMD group finds its slot's expert from the logits, which takes less
// time than waiting for another launch.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Rows from `row` of an expert's matrix, split `split` of a turn.
template <u32 BITS>
MF_FN UnitPart<BITS> unit_expert_part(MF_T t, MF_PARAMS(UnitExpertParams) p, ExpertMatrix from,
                                      u32 row, u32 split) {
  const UnitPart<BITS> part = {p.matrix,
                               MF_AT(t, const u8, from.data),
                               MF_AT(t, const u8, from.scales),
                               MF_AT(t, const u8, from.biases),
                               p.cols,
                               row,
                               split,
                               p.splits,
                               p.shared};
  return part;
}

/// Expert `id` where experts lie evenly.
MF_FN ExpertMatrix expert_at(ExpertMatrix first, u64 offset) {
  first.data += offset;
  first.scales += offset;
  first.biases += offset;
  first.bias = first.bias == 0u ? first.bias : first.bias + offset;
  return first;
}

/// A division takes a hundred cycles; the first token needs none.
MF_FN u32 token_of(u32 slot, u32 top_k) { return slot < top_k ? 0u : slot / top_k; }

/// What a group computes: rows of one expert for one row of x.
struct UnitSlot {
  ExpertMatrix matrices[2];  // gate and up, or down
  bool is_shared;
  bool exists;
};

/// The matrices of the expert that slot `t.group.y` goes to, from matrix `which` of its entry.
MF_FN void find_expert(MF_PARAMS(UnitExpertsOneParams) p, MF_LOCAL(UnitSlot) slot, u32 id,
                       MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries, u32 which,
                       u32 count) {
  slot->exists = id < p.expert.ids;
  if (!slot->exists) return;
  if (p.stride != 0u) {
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      if (i < count) slot->matrices[i] = expert_at(p.first[i], id * p.stride);
    }
    return;
  }
  const u32 entry = map[id];
  slot->exists = entry != kNoEntry;
  if (!slot->exists) return;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    if (i < count) slot->matrices[i] = expert_matrix(entries, entry, which + i);
  }
}

MF_FN UnitSlot shared_slot(MF_T t, MF_PARAMS(UnitExpertsOneParams) p) {
  UnitSlot slot;
  slot.is_shared = t.group.y >= p.slots;
  slot.exists = slot.is_shared;
  slot.matrices[0] = p.shared[0];
  slot.matrices[1] = p.shared[1];
  return slot;
}

/// Behind what the products share.
MF_FN MF_SHARED(u32) route_words(MF_T t, MF_PARAMS(UnitExpertsOneParams) p) {
  const u32 turns = p.expert.shared.turns;
  const u32 parts = unit_one_shared(turns * p.expert.splits).parts;
  return MF_SHARED_AT(t, u32, (parts + turns * (kUnitSimds * kUnitRows)) * 4u);
}

/// out = gated_unit(gate x + bias, up x + bias): half of the SIMD groups have the gate. The shared
/// expert's inputs are awaited here.
template <u32 BITS>
MF_FN void unit_gate_up_of_one(MF_T t, MF_PARAMS(UnitExpertParams) p, UnitSlot slot,
                               MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  const u32 staged = p.shared.turns * p.splits;
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(staged).parts * 4u);
  const u32 shift = splits_shift(p.splits);
  const u32 split = t.simd & (p.splits - 1u);
  const u32 tiles = (kUnitSimds / 2u) >> shift;  // a power of two
  const u32 which = t.simd / (kUnitSimds / 2u);
  const u32 row = (t.group.x * tiles + ((t.simd >> shift) & (tiles - 1u))) * kUnitRows;
  const ExpertMatrix own = which == 0u ? slot.matrices[0] : slot.matrices[1];
  const UnitPart<BITS> part = unit_expert_part<BITS>(t, p, own, row, split);
  unit_begin_turns(t, &part);
  if (slot.is_shared) await_inputs(t);
  const u32 own_row = t.group.x * tiles * kUnitRows + t.index;
  const bool is_mine = t.index < tiles * kUnitRows && own_row < p.matrix.rows;
  stage_unit_row(t, x, staged, p.cols, p.wide);
  barrier(t);
  unit_multiply_turns(t, &part, parts);
  if (is_mine) {
    const u32 at = t.index / kUnitRows * p.splits * kUnitRows + t.index % kUnitRows;
    f32 sums[2];
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      sums[i] = sum_unit_splits(parts + (at + i * tiles * p.splits * kUnitRows), p.shared, p.splits,
                                p.cols);
    }
    out[own_row] = gated_unit(sums[0] + bias_at(t, slot.matrices[0].bias, own_row, p.bias_format),
                              sums[1] + bias_at(t, slot.matrices[1].bias, own_row, p.bias_format),
                              p.activation, p.alpha, p.limit, p.up_offset);
  }
}

template <u32 BITS>
MF_FN void unit_gate_up_of_slot(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, MF_GLOBAL(i32) ids,
                                MF_GLOBAL(f32) weights, MF_GLOBAL(const f32) logits,
                                MF_GLOBAL(const f32) correction, MF_GLOBAL(const f32) expert_scale,
                                MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                                MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out,
                                MF_GLOBAL(f32) shared_out) {
  UnitSlot slot = shared_slot(t, p);
  u32 token = t.group.y - p.slots;
  MF_GLOBAL(const f32) from = x + token * p.shared_x_stride;
  MF_GLOBAL(f32) to = shared_out + token * p.shared_out_stride;
  if (!slot.is_shared) {
    await_inputs(t);
    token = token_of(t.group.y, p.expert.top_k);
    const u32 rank = t.group.y - token * p.expert.top_k;
    u32 id = 0u;
    if (p.route.thread_experts != 0u) {
      const bool writes = t.group.x == 0u && rank == 0u;
      id = route_token(t, p.route, token, rank, writes, route_words(t, p), logits, correction,
                       expert_scale, ids, weights);
    } else {
      id = static_cast<u32>(ids[t.group.y]);
    }
    find_expert(p, &slot, id, map, entries, 0u, 2u);
    if (!slot.exists) return;
    from = x + token * p.expert.x_stride;
    to = out + t.group.y * p.expert.out_stride;
  }
  unit_gate_up_of_one<BITS>(t, p.expert, slot, from, to);
}

/// out = (down x + bias) * gate. Awaits its inputs; weights and routes are there before.
template <u32 BITS>
MF_FN void unit_down_of_one(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, UnitSlot slot,
                            MF_GLOBAL(const f32) x, MF_GLOBAL(const f32) gate, MF_GLOBAL(f32) out) {
  MF_PARAMS(UnitExpertParams) e = p.expert;
  const u32 staged = e.shared.turns * e.splits;
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(staged).parts * 4u);
  const u32 shift = splits_shift(e.splits);
  const u32 split = t.simd & (e.splits - 1u);
  const u32 tiles = kUnitSimds >> shift;
  const u32 row = (t.group.x * tiles + (t.simd >> shift)) * kUnitRows;
  const UnitPart<BITS> part = unit_expert_part<BITS>(t, e, slot.matrices[0], row, split);
  unit_begin_turns(t, &part);
  await_inputs(t);
  const u32 own_row = t.group.x * tiles * kUnitRows + t.index;
  const bool is_mine = t.index < tiles * kUnitRows && own_row < e.matrix.rows;
  stage_unit_row(t, x, staged, e.cols, e.wide);
  barrier(t);
  unit_multiply_turns(t, &part, parts);
  if (is_mine) {
    const u32 at = t.index / kUnitRows * e.splits * kUnitRows + t.index % kUnitRows;
    f32 sum = sum_unit_splits(parts + at, e.shared, e.splits, e.cols);
    sum = sum + bias_at(t, slot.matrices[0].bias, own_row, e.bias_format);
    if (slot.is_shared && p.has_shared_gate != 0u) sum = sum * sigmoid(gate[0]);
    out[own_row] = sum;
  }
}

/// What is read before the inputs are awaited was written before unit_gate_up_one, which comes
/// right before: ids, or the logits that both choose from.
template <u32 BITS>
MF_FN void unit_down_of_slot(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, MF_GLOBAL(i32) ids,
                             MF_GLOBAL(f32) weights, MF_GLOBAL(const f32) logits,
                             MF_GLOBAL(const f32) correction, MF_GLOBAL(const u32) map,
                             MF_GLOBAL(const u64) entries, MF_GLOBAL(const f32) x,
                             MF_GLOBAL(f32) out, MF_GLOBAL(const f32) shared_x,
                             MF_GLOBAL(const f32) shared_gate, MF_GLOBAL(f32) shared_out) {
  UnitSlot slot = shared_slot(t, p);
  const u32 token = t.group.y - p.slots;
  MF_GLOBAL(const f32) from = shared_x + token * p.shared_x_stride;
  MF_GLOBAL(f32) to = shared_out + token * p.shared_out_stride;
  if (!slot.is_shared) {
    u32 id = 0u;
    if (p.route.thread_experts != 0u) {
      const u32 routed = token_of(t.group.y, p.route.top_k);
      id = route_token(t, p.route, routed, t.group.y - routed * p.route.top_k, false,
                       route_words(t, p), logits, correction, logits, ids, weights);
    } else {
      id = static_cast<u32>(ids[t.group.y]);
    }
    find_expert(p, &slot, id, map, entries, 2u, 1u);
    if (!slot.exists) {
      await_inputs(t);
      return;
    }
    from = x + t.group.y * p.expert.x_stride;
    to = out + t.group.y * p.expert.out_stride;
  }
  unit_down_of_one<BITS>(t, p, slot, from, shared_gate + token, to);
}

// Group x: rows; y: the slot. 256 threads. A kernel for each width of codes: wide ones need twice
// the registers. All groups of eight slots and a shared expert run at once where four fit.
#define MF_UNIT_EXPERTS_ONE(BITS, fits)                                                      \
  MF_FITS(256, fits)                                                                         \
  MF_KERNEL(unit_gate_up_one##BITS, UnitExpertsOneParams, MF_WRITE(0, i32, ids),             \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction), \
            MF_READ(4, f32, expert_scale), MF_READ(5, u32, map), MF_READ(6, u64, entries),   \
            MF_READ(7, f32, x), MF_WRITE(8, f32, out), MF_WRITE(9, f32, shared_out)) {       \
    MF_THREAD_EARLY;                                                                         \
    unit_gate_up_of_slot<BITS##u>(t, p, ids, weights, logits, correction, expert_scale, map, \
                                  entries, x, out, shared_out);                              \
  }                                                                                          \
  MF_FITS(256, fits)                                                                         \
  MF_KERNEL(unit_down_one##BITS, UnitExpertsOneParams, MF_WRITE(0, i32, ids),                \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction), \
            MF_READ(4, u32, map), MF_READ(5, u64, entries), MF_READ(6, f32, x),              \
            MF_WRITE(7, f32, out), MF_READ(8, f32, shared_x), MF_READ(9, f32, shared_gate),  \
            MF_WRITE(10, f32, shared_out)) {                                                 \
    MF_THREAD_EARLY;                                                                         \
    unit_down_of_slot<BITS##u>(t, p, ids, weights, logits, correction, map, entries, x, out, \
                               shared_x, shared_gate, shared_out);                           \
  }
MF_UNIT_EXPERTS_ONE(4, 4)
MF_UNIT_EXPERTS_ONE(8, 2)
#undef MF_UNIT_EXPERTS_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
