// The routed experts: a tile of slots of one expert times the expert's matrices, which the kernel
// finds through a table of ready experts. Slots of experts that are not ready are not touched.
#pragma once

#include "backend/gpu/kernels/experts/expert_lists.h"
#include "backend/gpu/kernels/experts/params.h"
#include "backend/gpu/kernels/matmul/large_tile.h"
#include "backend/gpu/kernels/matmul/matrix_tile.h"
#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/matmul/weights.h"
#include "backend/gpu/kernels/norm/slot_sum.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/elements.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The slots of a group: list[begin, begin + count), or the one slot `begin`. count 0: none.
struct SlotTile {
  u32 entry;
  u32 begin;
  u32 count;
};

MF_FN SlotTile slot_tile(MF_T t, MF_PARAMS(ExpertParams) p, MF_GLOBAL(const i32) ids,
                         MF_GLOBAL(const u32) map, MF_GLOBAL(const u32) tiles) {
  SlotTile tile;
  if (p.use_tiles != 0u) {
    const u32 at = 1u + t.group.y * 3u;
    const bool exists = t.group.y < tiles[0];
    tile.entry = exists ? tiles[at] : 0u;
    tile.begin = exists ? tiles[at + 1u] : 0u;
    tile.count = exists ? tiles[at + 2u] : 0u;
  } else {
    tile.entry = entry_of(ids, map, p.ids, t.group.y);
    tile.begin = t.group.y;
    tile.count = tile.entry == kNoEntry ? 0u : 1u;
  }
  return tile;
}

/// Matrix `which` of an ExpertEntry, word by word: gate, up, down.
MF_FN ExpertMatrix expert_matrix(MF_GLOBAL(const u64) entries, u32 entry, u32 which) {
  const u32 at = (entry * 3u + which) * 4u;
  return ExpertMatrix{entries[at], entries[at + 1u], entries[at + 2u], entries[at + 3u]};
}

MF_FN u32 slot_of(MF_PARAMS(ExpertParams) p, MF_GLOBAL(const u32) list, SlotTile tile, u32 j) {
  if (j >= tile.count) return 0u;
  return p.use_tiles != 0u ? list[tile.begin + j] : tile.begin;
}

template <u32 TOKENS>
MF_FN void stage_slots(MF_T t, MF_PARAMS(ExpertParams) p, MF_GLOBAL(const u32) list, SlotTile tile,
                       MF_GLOBAL(const f32) x, MF_SHARED(f32) staged, u32 begin, u32 count) {
  if (begin > 0u) barrier(t);
  for (u32 j = 0u; j < TOKENS; ++j) {
    const u32 row = slot_of(p, list, tile, j) / p.top_k;
    stage_row(t, staged + j * p.stage_cols, x + row * p.x_stride, begin, count, j >= tile.count,
              p.wide);
  }
  barrier(t);
}

template <u32 FORMAT, u32 ROWS, u32 TOKENS>
MF_FN void accumulate_expert(MF_T t, MF_LOCAL(f32) acc, MatrixLayout m, ExpertMatrix from,
                             MF_LOCAL(const u32) rows, MF_SHARED(f32) staged, u32 stage_cols,
                             u32 begin, u32 count) {
  MF_GLOBAL(const u8) data = MF_AT(t, const u8, from.data);
  // Plain matrices have no scales: any valid pointer will do.
  MF_GLOBAL(const u8) scales = MF_AT(t, const u8, from.scales == 0u ? from.data : from.scales);
  MF_GLOBAL(const u8) biases = MF_AT(t, const u8, from.biases == 0u ? from.data : from.biases);
  Accumulate<FORMAT, ROWS, TOKENS>::run(t, acc, m, data, scales, biases, rows, staged, stage_cols,
                                        begin, count);
}

template <u32 ROWS>
MF_FN void clamp_rows(MF_LOCAL(u32) rows, u32 first, u32 limit) {
  MF_UNROLL
  for (u32 r = 0u; r < ROWS; ++r) rows[r] = first + r < limit ? first + r : limit - 1u;
}

/// out[slot] = down x[slot / top_k] + bias. Group x: ROWS rows a SIMD group; y: a tile.
template <u32 FORMAT, u32 TOKENS>
MF_FN void expert_linear_tile(MF_T t, MF_PARAMS(ExpertParams) p, MF_GLOBAL(const i32) ids,
                              MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                              MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                              MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  const SlotTile tile = slot_tile(t, p, ids, map, tiles);
  if (tile.count == 0u) return;
  constexpr u32 ROWS = TOKENS == 1u ? kRowsOfOneToken : kRowsOfTile;
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, 0u);
  const ExpertMatrix down = expert_matrix(entries, tile.entry, 2u);
  const u32 first = (t.group.x * t.simds + t.simd) * ROWS;
  u32 rows[ROWS];
  clamp_rows<ROWS>(rows, first, p.gate.rows);
  f32 acc[ROWS * TOKENS];
  MF_UNROLL
  for (u32 i = 0u; i < ROWS * TOKENS; ++i) acc[i] = 0.0f;
  for (u32 begin = 0u; begin < p.gate.cols; begin += p.stage_cols) {
    const u32 left = p.gate.cols - begin;
    const u32 count = left < p.stage_cols ? left : p.stage_cols;
    stage_slots<TOKENS>(t, p, list, tile, x, staged, begin, count);
    accumulate_expert<FORMAT, ROWS, TOKENS>(t, acc, p.gate, down, rows, staged, p.stage_cols, begin,
                                            count);
  }
  simd_sums<ROWS * TOKENS>(t, acc);
  MF_UNROLL
  for (u32 r = 0u; r < ROWS; ++r) {
    const f32 bias = bias_at(t, down.bias, rows[r], p.bias_format);
    MF_UNROLL
    for (u32 j = 0u; j < TOKENS; ++j) {
      const f32 sum = acc[r * TOKENS + j] + bias;
      if (t.lane == 0u && first + r < p.gate.rows && j < tile.count) {
        out[slot_of(p, list, tile, j) * p.out_stride + first + r] = sum;
      }
    }
  }
}

/// out[slot] = gated_unit(gate x + bias, up x + bias). Group x: ROWS rows a SIMD group; y: a tile.
template <u32 FORMAT, u32 TOKENS>
MF_FN void expert_gate_up_tile(MF_T t, MF_PARAMS(ExpertParams) p, MF_GLOBAL(const i32) ids,
                               MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                               MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                               MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  const SlotTile tile = slot_tile(t, p, ids, map, tiles);
  if (tile.count == 0u) return;
  constexpr u32 ROWS = TOKENS == 1u ? kGateUpRowsOfOneToken : kGateUpRowsOfTile;
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, 0u);
  const ExpertMatrix gate = expert_matrix(entries, tile.entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, tile.entry, 1u);
  const u32 first = (t.group.x * t.simds + t.simd) * ROWS;
  u32 rows[ROWS];
  clamp_rows<ROWS>(rows, first, p.gate.rows);
  f32 gates[ROWS * TOKENS];
  f32 ups[ROWS * TOKENS];
  MF_UNROLL
  for (u32 i = 0u; i < ROWS * TOKENS; ++i) {
    gates[i] = 0.0f;
    ups[i] = 0.0f;
  }
  for (u32 begin = 0u; begin < p.gate.cols; begin += p.stage_cols) {
    const u32 left = p.gate.cols - begin;
    const u32 count = left < p.stage_cols ? left : p.stage_cols;
    stage_slots<TOKENS>(t, p, list, tile, x, staged, begin, count);
    accumulate_expert<FORMAT, ROWS, TOKENS>(t, gates, p.gate, gate, rows, staged, p.stage_cols,
                                            begin, count);
    accumulate_expert<FORMAT, ROWS, TOKENS>(t, ups, p.up, up, rows, staged, p.stage_cols, begin,
                                            count);
  }
  simd_sums<ROWS * TOKENS>(t, gates);
  simd_sums<ROWS * TOKENS>(t, ups);
  MF_UNROLL
  for (u32 r = 0u; r < ROWS; ++r) {
    const f32 gate_bias = bias_at(t, gate.bias, rows[r], p.bias_format);
    const f32 up_bias = bias_at(t, up.bias, rows[r], p.bias_format);
    MF_UNROLL
    for (u32 j = 0u; j < TOKENS; ++j) {
      const f32 g = gates[r * TOKENS + j] + gate_bias;
      const f32 u = ups[r * TOKENS + j] + up_bias;
      if (t.lane == 0u && first + r < p.gate.rows && j < tile.count) {
        out[slot_of(p, list, tile, j) * p.out_stride + first + r] =
            gated_unit(g, u, p.activation, p.alpha, p.limit, p.up_offset);
      }
    }
  }
}

#define MF_EXPERT(name, function, FORMAT, TOKENS)                                    \
  MF_KERNEL(name, ExpertParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),          \
            MF_READ(2, u64, entries), MF_READ(3, u32, list), MF_READ(4, u32, tiles), \
            MF_READ(5, f32, x), MF_WRITE(6, f32, out)) {                             \
    MF_THREAD;                                                                       \
    function<FORMAT, TOKENS>(t, p, ids, map, entries, list, tiles, x, out);          \
  }
#define MF_EXPERT_TILES(name, function, FORMAT) \
  MF_EXPERT(name##_t1, function, FORMAT, 1u)    \
  MF_EXPERT(name##_t4, function, FORMAT, 4u)    \
  MF_EXPERT(name##_t8, function, FORMAT, 8u)
#define MF_EXPERT_FORMATS(name, function)             \
  MF_EXPERT_TILES(name##_f32, function, kFormatF32)   \
  MF_EXPERT_TILES(name##_f16, function, kFormatF16)   \
  MF_EXPERT_TILES(name##_bf16, function, kFormatBf16) \
  MF_EXPERT_TILES(name##_w2, function, 2u)            \
  MF_EXPERT_TILES(name##_w3, function, 3u)            \
  MF_EXPERT_TILES(name##_w4, function, 4u)            \
  MF_EXPERT_TILES(name##_w5, function, 5u)            \
  MF_EXPERT_TILES(name##_w6, function, 6u)            \
  MF_EXPERT_TILES(name##_w8, function, 8u)            \
  MF_EXPERT_TILES(name##_fp8, function, kCoded_fp8)   \
  MF_EXPERT_TILES(name##_any, function, 0u)
MF_EXPERT_FORMATS(expert_linear, expert_linear_tile)
MF_EXPERT_FORMATS(expert_gate_up, expert_gate_up_tile)
#undef MF_EXPERT_FORMATS
#undef MF_EXPERT_TILES

MF_FN MF_GLOBAL(const u8) scales_of(MF_T t, ExpertMatrix from) {
  return MF_AT(t, const u8, from.scales == 0u ? from.data : from.scales);
}

/// Four rows of either matrix times 16 slots.
template <u32 FORMAT>
MF_FN void multiply_slots(MF_T t, MF_PARAMS(ExpertParams) p, MF_GLOBAL(const u32) list,
                          SlotTile tile, ExpertMatrix upper, ExpertMatrix lower, u32 first,
                          u32 second, MF_GLOBAL(const f32) x,
                          MF_LOCAL(LargeTileSums<FORMAT>) sums) {
  LargeTileRows rows = {p.gate,
                        MF_AT(t, const u8, upper.data),
                        MF_AT(t, const u8, lower.data),
                        scales_of(t, upper),
                        scales_of(t, lower),
                        {first, second},
                        p.gate.rows - 1u,
                        x,
                        p.x_stride,
                        {}};
  MF_UNROLL
  for (u32 i = 0u; i < kLargeTileCopies; ++i) {
    rows.x_row[i] = slot_of(p, list, tile, large_tile_token(t, i)) / p.top_k;
  }
  sums->multiply(t, &rows);
}

/// expert_linear_tile() of 16 slots. Group x: 8 rows a SIMD group; y: a tile.
template <u32 FORMAT, u32>
MF_FN void expert_linear_large(MF_T t, MF_PARAMS(ExpertParams) p, MF_GLOBAL(const i32) ids,
                               MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                               MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                               MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  const SlotTile tile = slot_tile(t, p, ids, map, tiles);
  if (tile.count == 0u) return;
  const ExpertMatrix down = expert_matrix(entries, tile.entry, 2u);
  const u32 first = (t.group.x * t.simds + t.simd) * kLargeTileRows;
  LargeTileSums<FORMAT> sums;
  multiply_slots<FORMAT>(t, p, list, tile, down, down, first, first + 4u, x, &sums);
  const u32 row = first + t.lane / 4u;
  if (row >= p.gate.rows) return;
  const f32 bias = bias_at(t, down.bias, row, p.bias_format);
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const u32 j = t.lane % 4u * 4u + i;
    if (j < tile.count) out[slot_of(p, list, tile, j) * p.out_stride + row] = sums.v[i] + bias;
  }
}

/// expert_gate_up_tile() of 16 slots. Group x: 4 rows of either matrix a SIMD group; y: a tile.
template <u32 FORMAT, u32>
MF_FN void expert_gate_up_large(MF_T t, MF_PARAMS(ExpertParams) p, MF_GLOBAL(const i32) ids,
                                MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                                MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                                MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  const SlotTile tile = slot_tile(t, p, ids, map, tiles);
  if (tile.count == 0u) return;
  const ExpertMatrix gate = expert_matrix(entries, tile.entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, tile.entry, 1u);
  const u32 first = (t.group.x * t.simds + t.simd) * (kLargeTileRows / 2u);
  LargeTileSums<FORMAT> sums;
  multiply_slots<FORMAT>(t, p, list, tile, gate, up, first, first, x, &sums);
  const u32 row = first + t.lane / 4u % 4u;
  const bool stores = t.lane < 16u && row < p.gate.rows;
  const f32 gate_bias = stores ? bias_at(t, gate.bias, row, p.bias_format) : 0.0f;
  const f32 up_bias = stores ? bias_at(t, up.bias, row, p.bias_format) : 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) {
    const f32 other = simd_shuffle_xor(t, sums.v[i], 16u);
    const u32 j = t.lane % 4u * 4u + i;
    if (!stores || j >= tile.count) continue;
    out[slot_of(p, list, tile, j) * p.out_stride + row] = gated_unit(
        sums.v[i] + gate_bias, other + up_bias, p.activation, p.alpha, p.limit, p.up_offset);
  }
}

#define MF_EXPERT_LARGE(name, function)                  \
  MF_FITS(kLargeTileThreads, 1)                          \
  MF_EXPERT(name##_f32_t16, function, kFormatF32, 16u)   \
  MF_FITS(kLargeTileThreads, 1)                          \
  MF_EXPERT(name##_f16_t16, function, kFormatF16, 16u)   \
  MF_FITS(kLargeTileThreads, 1)                          \
  MF_EXPERT(name##_bf16_t16, function, kFormatBf16, 16u) \
  MF_FITS(kLargeTileThreads, 1) MF_EXPERT(name##_fp8_t16, function, kCoded_fp8, 16u)
MF_EXPERT_LARGE(expert_linear, expert_linear_large)
MF_EXPERT_LARGE(expert_gate_up, expert_gate_up_large)
#undef MF_EXPERT_LARGE
#undef MF_EXPERT

/// A column of a token's slots.
struct ColumnSlots {
  typedef f32 Value;
  MF_GLOBAL(const f32) slots;
  MF_GLOBAL(const f32) weights;
  u64 stride;

  MF_FN_MEMBER Value load(MF_T, u32 rank) const { return slots[rank * stride]; }
  MF_FN_MEMBER f32 weight(MF_T, u32 rank) const { return weights[rank]; }
  MF_FN_MEMBER void add(MF_LOCAL(Value) sum, f32 weight, Value value) const {
    *sum = mf_fma(weight, value, *sum);
  }
};

/// out[t] = sum over ranks, in order, of weight * slot. A thread a column; group y: the token.
MF_KERNEL(combine_slots, CombineParams, MF_READ(0, f32, slots), MF_READ(1, f32, weights),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const u32 col = t.group.x * t.threads + t.index;
  if (col >= p.cols) return;
  const u64 first = static_cast<u64>(t.group.y) * p.top_k;
  const ColumnSlots own = {slots + (first * p.slot_stride + col), weights + first, p.slot_stride};
  f32 sum = 0.0f;
  sum_slots<1u>(t, &own, p.top_k, &sum);
  out[t.group.y * p.out_stride + col] = sum;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
