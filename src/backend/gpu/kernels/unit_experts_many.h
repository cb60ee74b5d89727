// The routed experts' products on matrix units for many tokens: tiles of the slots of one expert.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// The rows of x of a tile of slots; returns the tile. x has a row for `per_row` slots.
MF_FN SlotTile stage_slot_rows(MF_T t, MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                               u32 per_row) {
  MF_SHARED(u32) rows = MF_SHARED_AT(t, u32, 0u);
  SlotTile tile;
  const u32 at = 1u + t.group.y * 3u;
  const bool exists = t.group.y < tiles[0];
  tile.entry = exists ? tiles[at] : 0u;
  tile.begin = exists ? tiles[at + 1u] : 0u;
  tile.count = exists ? tiles[at + 2u] : 0u;
  if (t.index < kUnitTokens && exists) {
    const u32 slot = t.index < tile.count ? t.index : tile.count - 1u;
    rows[t.index] = list[tile.begin + slot] / per_row;
  }
  barrier(t);
  return tile;
}

/// Group x: 128 rows of gate, which one half of the SIMD groups have, and of up; y: a tile of
/// slots. 256 threads.
MF_FITS(kUnitThreads, 2u)
MF_KERNEL(unit_gate_up, UnitExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),
          MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const SlotTile tile = stage_slot_rows(t, list, tiles, p.top_k);
  if (tile.count == 0u) return;
  const ExpertMatrix gate = expert_matrix(entries, tile.entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, tile.entry, 1u);
  const ExpertMatrix own = t.simd < kUnitSimds / 2u ? gate : up;
  const u32 half = kUnitGroupRows / 2u;
  const u32 first_row = t.group.x * half;
  unit_multiply(t, p.matrix, p.cols, MF_AT(t, const u8, own.data), MF_AT(t, const u8, own.scales),
                MF_AT(t, const u8, own.biases),
                first_row + t.simd % (kUnitSimds / 2u) * kUnitManyRows, tile.count, split,
                split_sums);
  const u32 row = first_row + t.index % half;
  if (row >= p.matrix.rows) return;
  const f32 gate_bias = bias_at(t, gate.bias, row, p.bias_format);
  const f32 up_bias = bias_at(t, up.bias, row, p.bias_format);
  MF_SHARED(f32) products = MF_SHARED_AT(t, f32, 0u) + t.index % half;
  MF_ROLLED
  for (u32 slot = t.index / half; slot < tile.count; slot += kUnitThreads / half) {
    out[list[tile.begin + slot] * p.out_stride + row] =
        gated_unit(products[slot * kUnitPlaceWords] + gate_bias,
                   products[slot * kUnitPlaceWords + half] + up_bias, p.activation, p.alpha,
                   p.limit, p.up_offset);
  }
}

/// Group x: 256 rows; y: a tile of slots. 256 threads.
MF_FITS(kUnitThreads, 2u)
MF_KERNEL(unit_down, UnitExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),
          MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const SlotTile tile = stage_slot_rows(t, list, tiles, 1u);
  if (tile.count == 0u) return;
  const ExpertMatrix down = expert_matrix(entries, tile.entry, 2u);
  const u32 first_row = t.group.x * kUnitGroupRows;
  unit_multiply(t, p.matrix, p.cols, MF_AT(t, const u8, down.data), MF_AT(t, const u8, down.scales),
                MF_AT(t, const u8, down.biases), first_row + t.simd * kUnitManyRows, tile.count,
                split, split_sums);
  const u32 row = first_row + t.index;
  if (row >= p.matrix.rows) return;
  const f32 bias = bias_at(t, down.bias, row, p.bias_format);
  MF_SHARED(f32) products = MF_SHARED_AT(t, f32, 0u) + t.index;
  for (u32 slot = 0u; slot < tile.count; ++slot) {
    out[list[tile.begin + slot] * p.out_stride + row] = products[slot * kUnitPlaceWords] + bias;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
