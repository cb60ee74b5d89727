// The routed experts of single tokens on matrix units: a slot reads its expert by itself.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

template <u32 BITS>
MF_FN void load_unit_expert(MF_T t, MF_PARAMS(UnitExpertParams) p, MF_LOCAL(UnitPart<BITS>) part,
                            ExpertMatrix from, u32 row, u32 first_column) {
  part->load(t, p.matrix, MF_AT(t, const u8, from.data), MF_AT(t, const u8, from.scales),
             MF_AT(t, const u8, from.biases), p.cols, row, first_column);
}

/// out[slot] = gated_unit(gate x + bias, up x + bias): half of the SIMD groups have the gate.
template <u32 BITS>
MF_FN void unit_gate_up_of_one(MF_T t, MF_PARAMS(UnitExpertParams) p, u32 entry,
                               MF_GLOBAL(const u64) entries, MF_GLOBAL(const f32) x,
                               MF_GLOBAL(f32) out) {
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(p.splits).parts * 4u);
  const u32 split = t.simd % p.splits;
  const u32 tiles = kUnitSimds / p.splits / 2u;
  const u32 which = t.simd / p.splits / tiles;
  const u32 row = (t.group.x * tiles + t.simd / p.splits % tiles) * kUnitRows;
  const ExpertMatrix gate = expert_matrix(entries, entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, entry, 1u);
  UnitPart<BITS> part;
  const u32 own_row = t.group.x * tiles * kUnitRows + t.index;
  const bool is_mine = t.index < tiles * kUnitRows && own_row < p.matrix.rows;
  f32 sums[2] = {0.0f, 0.0f};
  for (u32 begin = 0u; begin < p.cols; begin += p.splits * kUnitSplit) {
    if (begin > 0u) barrier(t);
    load_unit_expert<BITS>(t, p, &part, which == 0u ? gate : up, row, begin + split * kUnitSplit);
    stage_unit_row(t, x, begin, p.splits, p.cols, p.wide);
    barrier(t);
    part.multiply(t, p.matrix.scales, split, p.splits, parts + t.simd * kUnitRows);
    barrier(t);
    if (is_mine) {
      const u32 own = t.index / kUnitRows * p.splits * kUnitRows + t.index % kUnitRows;
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        sums[i] = add_unit_splits(parts + (own + i * tiles * p.splits * kUnitRows), sums[i],
                                  p.splits, begin, p.cols);
      }
    }
  }
  if (is_mine) {
    out[own_row] = gated_unit(sums[0] + bias_at(t, gate.bias, own_row, p.bias_format),
                              sums[1] + bias_at(t, up.bias, own_row, p.bias_format), p.activation,
                              p.alpha, p.limit, p.up_offset);
  }
}

/// Group x: rows; y: the slot. 256 threads.
MF_KERNEL(unit_gate_up_one, UnitExpertParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),
          MF_READ(2, u64, entries), MF_READ(3, f32, x), MF_WRITE(4, f32, out)) {
  MF_THREAD;
  const u32 entry = entry_of(ids, map, p.ids, t.group.y);
  if (entry == kNoEntry) return;
  MF_GLOBAL(const f32) x_row = x + (t.group.y / p.top_k) * p.x_stride;
  MF_GLOBAL(f32) out_row = out + t.group.y * p.out_stride;
  if (p.matrix.bits == 4u) {
    unit_gate_up_of_one<4u>(t, p, entry, entries, x_row, out_row);
  } else {
    unit_gate_up_of_one<8u>(t, p, entry, entries, x_row, out_row);
  }
}

/// out[slot] = down x[slot] + bias.
template <u32 BITS>
MF_FN void unit_down_of_one(MF_T t, MF_PARAMS(UnitExpertParams) p, u32 entry,
                            MF_GLOBAL(const u64) entries, MF_GLOBAL(const f32) x,
                            MF_GLOBAL(f32) out) {
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(p.splits).parts * 4u);
  const u32 split = t.simd % p.splits;
  const u32 tiles = kUnitSimds / p.splits;
  const u32 row = (t.group.x * tiles + t.simd / p.splits) * kUnitRows;
  const ExpertMatrix down = expert_matrix(entries, entry, 2u);
  UnitPart<BITS> part;
  load_unit_expert<BITS>(t, p, &part, down, row, split * kUnitSplit);
  await_inputs(t);
  const u32 own_row = t.group.x * tiles * kUnitRows + t.index;
  const bool is_mine = t.index < tiles * kUnitRows && own_row < p.matrix.rows;
  f32 sum = 0.0f;
  for (u32 begin = 0u; begin < p.cols; begin += p.splits * kUnitSplit) {
    if (begin > 0u) {
      barrier(t);
      load_unit_expert<BITS>(t, p, &part, down, row, begin + split * kUnitSplit);
    }
    stage_unit_row(t, x, begin, p.splits, p.cols, p.wide);
    barrier(t);
    part.multiply(t, p.matrix.scales, split, p.splits, parts + t.simd * kUnitRows);
    barrier(t);
    if (is_mine) {
      MF_SHARED(f32)
      own = parts + (t.index / kUnitRows * p.splits * kUnitRows + t.index % kUnitRows);
      sum = add_unit_splits(own, sum, p.splits, begin, p.cols);
    }
  }
  if (is_mine) {
    out[own_row] = sum + bias_at(t, down.bias, own_row, p.bias_format);
  }
}

/// Group x: rows; y: the slot. 256 threads. Comes right after unit_gate_up_one, so that the routes
/// are there before its inputs are.
MF_KERNEL(unit_down_one, UnitExpertParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),
          MF_READ(2, u64, entries), MF_READ(3, f32, x), MF_WRITE(4, f32, out)) {
  MF_THREAD_EARLY;
  const u32 entry = entry_of(ids, map, p.ids, t.group.y);
  if (entry == kNoEntry) {
    await_inputs(t);
    return;
  }
  MF_GLOBAL(const f32) x_row = x + t.group.y * p.x_stride;
  MF_GLOBAL(f32) out_row = out + t.group.y * p.out_stride;
  if (p.matrix.bits == 4u) {
    unit_down_of_one<4u>(t, p, entry, entries, x_row, out_row);
  } else {
    unit_down_of_one<8u>(t, p, entry, entries, x_row, out_row);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
