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

/// 128 rows of the gate in one half of the SIMD groups, the same of up in the other half; then all
/// threads finish what they left in shared memory: of each slot the gate's rows and up's.
template <u32 BITS, u32 TILES>
MF_FN void unit_gate_up_tiles(MF_T t, MF_PARAMS(UnitExpertParams) p, SlotTile tile,
                              MF_GLOBAL(const u64) entries, MF_GLOBAL(const u32) list,
                              MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                              MF_GLOBAL(f32) out) {
  const ExpertMatrix gate = expert_matrix(entries, tile.entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, tile.entry, 1u);
  const u32 half = kUnitGroupRows / 2u;
  const u32 stride = 2u * half + 4u;  // 4 against conflicts
  const bool is_gate = t.simd < kUnitSimds / 2u;
  const u32 first_row = t.group.x * half;
  const u32 own_row = t.simd % (kUnitSimds / 2u) * kUnitManyRows;
  const ExpertMatrix own = is_gate ? gate : up;
  UnitSums<BITS, TILES> sums;
  sums.multiply(t, p.matrix, p.cols, MF_AT(t, const u8, own.data), MF_AT(t, const u8, own.scales),
                MF_AT(t, const u8, own.biases), first_row + own_row, split, split_sums);
  MF_SHARED(f32) products = MF_SHARED_AT(t, f32, 0u);
  barrier(t);
  MF_UNROLL
  for (u32 at = 0u; at < sums.kOwn; ++at) {
    products[sums.token_of(t, at) * stride + (is_gate ? 0u : half) + own_row + sums.row_of(t, at)] =
        sums.v[at];
  }
  barrier(t);
  const u32 row = first_row + t.index % half;
  if (row >= p.matrix.rows) return;
  const f32 gate_bias = bias_at(t, gate.bias, row, p.bias_format);
  const f32 up_bias = bias_at(t, up.bias, row, p.bias_format);
  MF_ROLLED
  for (u32 slot = t.index / half; slot < tile.count; slot += t.threads / half) {
    MF_SHARED(f32) both = products + (slot * stride + t.index % half);
    out[list[tile.begin + slot] * p.out_stride + row] = gated_unit(
        both[0] + gate_bias, both[half] + up_bias, p.activation, p.alpha, p.limit, p.up_offset);
  }
}

/// Group x: 128 rows of gate and of up; y: a tile of slots. 256 threads.
MF_FITS(kUnitThreads, 2u)
MF_KERNEL(unit_gate_up, UnitExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),
          MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),
          MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const SlotTile tile = stage_slot_rows(t, list, tiles, p.top_k);
  if (tile.count == 0u) return;
  if (p.matrix.bits == 4u && tile.count > kUnitTokens / 2u) {
    unit_gate_up_tiles<4u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  } else if (p.matrix.bits == 4u) {
    unit_gate_up_tiles<4u, 2u>(t, p, tile, entries, list, split, split_sums, out);
  } else {
    unit_gate_up_tiles<8u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  }
}

template <u32 BITS, u32 TILES>
MF_FN void unit_down_tiles(MF_T t, MF_PARAMS(UnitExpertParams) p, SlotTile tile,
                           MF_GLOBAL(const u64) entries, MF_GLOBAL(const u32) list,
                           MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                           MF_GLOBAL(f32) out) {
  const ExpertMatrix down = expert_matrix(entries, tile.entry, 2u);
  const u32 row = (t.group.x * kUnitSimds + t.simd) * kUnitManyRows;
  UnitSums<BITS, TILES> sums;
  sums.multiply(t, p.matrix, p.cols, MF_AT(t, const u8, down.data), MF_AT(t, const u8, down.scales),
                MF_AT(t, const u8, down.biases), row, split, split_sums);
  MF_UNROLL
  for (u32 at = 0u; at < sums.kOwn; ++at) {
    const u32 out_row = row + sums.row_of(t, at);
    const u32 slot = sums.token_of(t, at);
    if (out_row < p.matrix.rows && slot < tile.count) {
      out[list[tile.begin + slot] * p.out_stride + out_row] =
          sums.v[at] + bias_at(t, down.bias, out_row, p.bias_format);
    }
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
  if (p.matrix.bits == 4u && tile.count > kUnitTokens / 2u) {
    unit_down_tiles<4u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  } else if (p.matrix.bits == 4u) {
    unit_down_tiles<4u, 2u>(t, p, tile, entries, list, split, split_sums, out);
  } else {
    unit_down_tiles<8u, 4u>(t, p, tile, entries, list, split, split_sums, out);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
