// The routed experts' products on matrix units for many tokens: tiles of the slots of one expert.
#pragma once

#include "backend/gpu/kernels/experts/experts.h"
#include "backend/gpu/kernels/experts/mma_params.h"
#include "backend/gpu/kernels/experts/params.h"
#include "backend/gpu/kernels/matmul/mma_ggml_multiply.h"
#include "backend/gpu/kernels/matmul/mma_multiply.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_stages.h"
#include "backend/gpu/kernels/matmul/weights.h"
#include "backend/gpu/kernels/rows/elements.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The rows of x of a tile of slots, then the slots, in shared memory; returns the tile. x has a
/// row for `per_row` slots.
template <u32 NUMBERS>
MF_FN SlotTile stage_slots_of(MF_T t, MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                              u32 per_row) {
  MF_SHARED(u32) numbers = MF_SHARED_AT(t, u32, 0u);
  const u32 at = 1u + t.group.y * 3u;
  // Loaded together; entries behind the last tile may hold anything.
  const u32 all = tiles[0];
  SlotTile tile = {tiles[at], tiles[at + 1u], tiles[at + 2u]};
  const bool exists = t.group.y < all;
  if (!exists) tile.count = 0u;
  if (t.index < NUMBERS && exists) {
    const u32 slot = list[tile.begin + (t.index < tile.count ? t.index : tile.count - 1u)];
    numbers[t.index] = slot / per_row;
    numbers[NUMBERS + t.index] = slot;
  }
  barrier(t);
  return tile;
}

/// gated_unit(): the code of all activations for each of a lane's sums would drive the products'
/// out of the caches of instructions.
MF_FN_APART f32 gated_unit_apart(f32 gate, f32 up, u32 activation, f32 alpha, f32 limit,
                                 f32 up_offset) {
  return gated_unit(gate, up, activation, alpha, limit, up_offset);
}

/// gated_unit() of gate's and up's products, the halves of a SIMD group's rows.
struct MmaGatedOutput {
  MF_GLOBAL(f32) out;
  u64 stride;
  u32 row;
  u32 rows;
  u32 tokens;
  u64 gate_biases;
  u64 up_biases;
  u32 bias_format;
  u32 activation;
  f32 alpha;
  f32 limit;
  f32 up_offset;

  template <u32 TILES, class Sums>
  MF_FN_MEMBER void store(MF_T t, MF_LOCAL(const Sums) sums) const {
    if (activation == 0u) {
      store_units<TILES, true>(t, sums);
    } else {
      store_units<TILES, false>(t, sums);
    }
  }
  template <u32 TILES, bool SILU, class Sums>
  MF_FN_MEMBER void store_units(MF_T t, MF_LOCAL(const Sums) sums) const {
    MF_SHARED(u32) slots = MF_SHARED_AT(t, u32, Sums::kNumbers * 4u) + (t.lane & 3u) * 2u;
    const u32 own = row + t.lane / 4u;
    if (own >= rows) return;
    const f32 gate_bias = bias_at(t, gate_biases, own, bias_format);
    const f32 up_bias = bias_at(t, up_biases, own, bias_format);
    MF_UNROLL
    for (u32 n = 0u; n < TILES; ++n) {
      MF_UNROLL
      for (u32 j = 0u; j < 2u; ++j) {
        if (n * 8u + (t.lane & 3u) * 2u + j >= tokens) continue;
        const f32 gate = sums->at(0u, n, j) + gate_bias;
        const f32 up = sums->at(1u, n, j) + up_bias;
        out[slots[n * 8u + j] * stride + own] =
            SILU ? gated_silu(gate, up, alpha, limit, up_offset)
                 : gated_unit_apart(gate, up, activation, alpha, limit, up_offset);
      }
    }
  }
};

template <u32 BITS>
MF_FN void mma_gate_up_tokens(MF_T t, MF_PARAMS(MmaExpertParams) p, MF_GLOBAL(const u64) entries,
                              SlotTile tile, MF_GLOBAL(const u32) split,
                              MF_GLOBAL(const f32) split_sums, MF_GLOBAL(f32) out) {
  const ExpertMatrix gate = expert_matrix(entries, tile.entry, 0u);
  const ExpertMatrix up = expert_matrix(entries, tile.entry, 1u);
  const u32 row = t.group.x * (kMmaGroupRows / 2u) + t.simd * kMmaHalfRows;
  const MmaMany many = {p.matrix, p.cols, p.tile, p.stages, p.walk.place_words, split, split_sums};
  const MmaRows rows[2] = {MmaTokens<BITS>::rows(t, gate.data, gate.scales, gate.biases, row),
                           MmaTokens<BITS>::rows(t, up.data, up.scales, up.biases, row)};
  const MmaGatedOutput output = {out,          p.out_stride, row,     p.matrix.rows,
                                 tile.count,   gate.bias,    up.bias, p.bias_format,
                                 p.activation, p.alpha,      p.limit, p.up_offset};
  MmaTokens<BITS>::multiply(t, many, rows, tile.count, &output);
}

template <u32 BITS>
MF_FN void mma_down_tokens(MF_T t, MF_PARAMS(MmaExpertParams) p, MF_GLOBAL(const u64) entries,
                           SlotTile tile, MF_GLOBAL(const u32) split,
                           MF_GLOBAL(const f32) split_sums, MF_GLOBAL(f32) out) {
  const ExpertMatrix down = expert_matrix(entries, tile.entry, 2u);
  const u32 row = t.group.x * kMmaGroupRows + t.simd * kMmaRows;
  const MmaMany many = {p.matrix, p.cols, p.tile, p.stages, p.walk.place_words, split, split_sums};
  const MmaRows first = MmaTokens<BITS>::rows(t, down.data, down.scales, down.biases, row);
  const MmaRows rows[2] = {
      first, {first.data, first.scales, first.biases, row + kMmaHalfRows, first.skew}};
  const MmaOutput output = {out,        p.out_stride, row,          p.matrix.rows,
                            tile.count, down.bias,    p.bias_format};
  MmaTokens<BITS>::multiply(t, many, rows, tile.count, &output);
}

// Group x: 64 rows of gate and of up, 8 of each a SIMD group, or 128 rows of down; y: a tile of
// slots. 256 threads.
#define MF_MMA_EXPERTS(name, BITS, multiply, per_row, fits)                                   \
  MF_FITS(kMmaThreads, fits)                                                                  \
  MF_KERNEL(name, MmaExpertParams, MF_READ(0, u64, entries), MF_READ(1, u32, list),           \
            MF_READ(2, u32, tiles), MF_READ(3, u32, split), MF_READ(4, f32, split_sums),      \
            MF_WRITE(5, f32, out)) {                                                          \
    MF_THREAD;                                                                                \
    const SlotTile tile = stage_slots_of<MmaTokens<BITS>::kNumbers>(t, list, tiles, per_row); \
    if (tile.count == 0u) return;                                                             \
    multiply<BITS>(t, p, entries, tile, split, split_sums, out);                              \
  }
MF_MMA_EXPERTS(mma_gate_up, 8u, mma_gate_up_tokens, p.top_k, 2u)
MF_MMA_EXPERTS(mma_gate_up_ggml, kMmaGgml, mma_gate_up_tokens, p.top_k, 1u)
MF_MMA_EXPERTS(mma_down, 8u, mma_down_tokens, 1u, 2u)
MF_MMA_EXPERTS(mma_down_ggml, kMmaGgml, mma_down_tokens, 1u, 1u)
#undef MF_MMA_EXPERTS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
