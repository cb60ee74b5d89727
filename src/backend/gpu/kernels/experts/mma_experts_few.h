// Experts' products on matrix units where experts have a few slots each: tiles of 4 to 16 slots of
// one expert, or of as many tokens of the shared one, whose weights are known before anything else.
// Down of 4 bits makes integers of its own activations.
#pragma once

#include "backend/gpu/kernels/experts/experts.h"
#include "backend/gpu/kernels/experts/mma_experts_t1.h"
#include "backend/gpu/kernels/experts/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_few.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/weights.h"
#include "backend/gpu/kernels/rows/elements.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A tile's slots and rows of x; past the last slot it is multiplied again, and not stored. Slots
/// of the shared expert are tokens.
struct MmaFewSlots {
  MF_GLOBAL(const u32) list;
  u32 begin;
  u32 last;
  u32 per_row;
  bool is_shared;

  MF_FN_MEMBER u32 slot(u32 i) const {
    const u32 at = begin + (i < last ? i : last);
    return is_shared ? at : list[at];
  }
  MF_FN_MEMBER u32 row(u32 i) const { return is_shared ? slot(i) : slot(i) / per_row; }
};

/// A group's tile and its matrices.
struct MmaFewTile {
  SlotTile slots;  // count 0: none
  ExpertMatrix matrices[2];
  bool is_shared;
};
/// Awaits the inputs unless the tile is the shared expert's.
template <u32 TOKENS, u32 FIRST, u32 COUNT>
MF_FN MmaFewTile mma_few_tile(MF_T t, MF_PARAMS(MmaExpertsFewParams) p,
                              MF_GLOBAL(const u64) entries, MF_GLOBAL(const u32) tiles) {
  MmaFewTile tile;
  tile.is_shared = t.group.y < p.shared_tiles;
  tile.matrices[0] = p.shared[0];
  tile.matrices[1] = p.shared[1];
  tile.slots.entry = 0u;
  tile.slots.begin = t.group.y * TOKENS;
  if (tile.is_shared) {
    const u32 left = p.tokens - tile.slots.begin;
    tile.slots.count = left < TOKENS ? left : TOKENS;
    return tile;
  }
  await_inputs(t);
  const u32 number = t.group.y - p.shared_tiles;
  const u32 all = tiles[0];
  // Loaded together; entries behind the last tile may hold anything.
  const SlotTile listed = {tiles[1u + number * 3u], tiles[2u + number * 3u],
                           tiles[3u + number * 3u]};
  tile.slots = listed;
  if (number >= all) {
    tile.slots.count = 0u;
    return tile;
  }
  MF_UNROLL
  for (u32 i = 0u; i < COUNT; ++i) {
    tile.matrices[i] = expert_matrix(entries, listed.entry, FIRST + i);
  }
  return tile;
}

template <u32 BITS, u32 TOKENS, u32 ROWS, u32 TYPE>
MF_FN void mma_gate_up_few(MF_T t, MF_PARAMS(MmaExpertsFewParams) p, MF_GLOBAL(const u64) entries,
                           MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                           MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) split_sums,
                           MF_GLOBAL(f32) routed_out, MF_GLOBAL(f32) shared_out) {
  MF_PARAMS(MmaExpertParams) e = p.expert;
  const MmaFewTile tile = mma_few_tile<TOKENS, 0u, 2u>(t, p, entries, tiles);
  if (tile.slots.count == 0u) return;
  const MmaPart<BITS> part = mma_gate_up_part<BITS>(t, e, tile.matrices[0], tile.matrices[1]);
  const MmaFewUnits units = MmaFewUnits::of_walk(e.walk);
  const u32 first_tile = t.group.x * units.sets * ROWS;
  mma_few_issue<BITS, ROWS, TYPE>(t, units, &part, first_tile);
  if (tile.is_shared) await_inputs(t);
  const MmaFewSlots slots = {list, tile.slots.begin, tile.slots.count - 1u, e.top_k,
                             tile.is_shared};
  MmaFewTokens<TOKENS> tokens = {split, MF_CAST(const u32, split_sums), {0u}, {0u}};
  tokens.begin(t, e.cols, MmaFewSums<BITS, TOKENS, ROWS, TYPE>::kSumWords, &slots);
  mma_few_multiply<BITS, TOKENS, ROWS, TYPE>(t, units, &part, e.cols, &tokens);
  MF_GLOBAL(f32) out = tile.is_shared ? shared_out : routed_out;
  const u64 stride = tile.is_shared ? p.shared_out_stride : e.out_stride;
  const u32 rows = units.sets * (ROWS * kMmaHalfRows);
  for (u32 i = t.index; i < rows * tile.slots.count; i += t.threads) {
    const u32 token = i / rows;
    const u32 r = i - token * rows;
    const u32 row = first_tile * kMmaHalfRows + r;
    if (row >= e.matrix.rows) continue;
    const u32 own = r / kMmaHalfRows * kMmaRows + r % kMmaHalfRows;
    out[slots.slot(token) * stride + row] =
        gated_unit(mma_few_sum<TOKENS, ROWS>(t, units, own, token) +
                       bias_at(t, tile.matrices[0].bias, row, e.bias_format),
                   mma_few_sum<TOKENS, ROWS>(t, units, own + kMmaHalfRows, token) +
                       bias_at(t, tile.matrices[1].bias, row, e.bias_format),
                   e.activation, e.alpha, e.limit, e.up_offset);
  }
}

/// Where the products of a tile of slots go.
struct MmaDownFewOut {
  MF_GLOBAL(f32) routed;
  MF_GLOBAL(f32) shared;
  MF_GLOBAL(const f32) shared_gate;

  template <u32 TOKENS, u32 ROWS>
  MF_FN_MEMBER void store(MF_T t, MF_PARAMS(MmaExpertsFewParams) p, MmaFewUnits units,
                          MmaFewTile tile, MmaFewSlots slots) const {
    MF_PARAMS(MmaExpertParams) e = p.expert;
    MF_GLOBAL(f32) out = tile.is_shared ? shared : routed;
    const u64 stride = tile.is_shared ? p.shared_out_stride : e.out_stride;
    const bool has_gate = tile.is_shared && p.has_shared_gate != 0u;
    const u32 rows = units.sets * (ROWS * kMmaRows);
    for (u32 i = t.index; i < rows * tile.slots.count; i += t.threads) {
      const u32 token = i / rows;
      const u32 row = t.group.x * rows + (i - token * rows);
      if (row >= e.matrix.rows) continue;
      const u32 slot = slots.slot(token);
      const f32 sum = mma_few_sum<TOKENS, ROWS>(t, units, i - token * rows, token) +
                      bias_at(t, tile.matrices[0].bias, row, e.bias_format);
      out[slot * stride + row] = has_gate ? sum * sigmoid(shared_gate[slot]) : sum;
    }
  }
};

template <u32 BITS, u32 TOKENS, u32 ROWS>
MF_FN void mma_down_few(MF_T t, MF_PARAMS(MmaExpertsFewParams) p, MF_GLOBAL(const u64) entries,
                        MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                        MF_GLOBAL(const f32) x, MF_GLOBAL(const f32) shared_x, MmaDownFewOut out) {
  MF_PARAMS(MmaExpertParams) e = p.expert;
  const MmaFewTile tile = mma_few_tile<TOKENS, 2u, 1u>(t, p, entries, tiles);
  if (tile.slots.count == 0u) return;
  const MmaPart<BITS> part = mma_down_part<BITS>(t, e, tile.matrices[0]);
  const MmaFewUnits units = MmaFewUnits::of_walk(e.walk);
  mma_few_issue<BITS, ROWS, kMmaAnyType>(t, units, &part, t.group.x * units.sets * ROWS);
  if (tile.is_shared) await_inputs(t);
  const MmaFewSlots slots = {list, tile.slots.begin, tile.slots.count - 1u, 1u, tile.is_shared};
  const MmaFewStaged<TOKENS> tokens = {e.walk.more, p.token_words, e.cols / 2u,
                                       tile.slots.count - 1u};
  tokens.stage(t, tile.is_shared ? shared_x : x, tile.is_shared ? p.shared_x_stride : e.x_stride,
               e.cols, e.wide, &slots);
  barrier(t);
  mma_few_multiply<BITS, TOKENS, ROWS, kMmaAnyType>(t, units, &part, e.cols, &tokens);
  out.template store<TOKENS, ROWS>(t, p, units, tile, slots);
}

/// Rows of activations as integers, and their sums.
struct MmaFewIntegers {
  MF_GLOBAL(const u32) split;
  MF_GLOBAL(const f32) sums;
};

/// The same of GGML's types, for activations that are integers in memory: so a group needs no
/// memory for them, and those of one expert do not make them again.
template <u32 TOKENS, u32 ROWS, u32 TYPE>
MF_FN void mma_down_few_ggml(MF_T t, MF_PARAMS(MmaExpertsFewParams) p, MF_GLOBAL(const u64) entries,
                             MF_GLOBAL(const u32) list, MF_GLOBAL(const u32) tiles,
                             MmaFewIntegers x, MmaFewIntegers shared_x, MmaDownFewOut out) {
  typedef MmaPart<kMmaGgml> Part;
  MF_PARAMS(MmaExpertParams) e = p.expert;
  const MmaFewTile tile = mma_few_tile<TOKENS, 2u, 1u>(t, p, entries, tiles);
  if (tile.slots.count == 0u) return;
  const Part part = mma_down_part<kMmaGgml>(t, e, tile.matrices[0]);
  const MmaFewUnits units = MmaFewUnits::of_walk(e.walk);
  mma_few_issue<kMmaGgml, ROWS, TYPE>(t, units, &part, t.group.x * units.sets * ROWS);
  if (tile.is_shared) await_inputs(t);
  const MmaFewSlots slots = {list, tile.slots.begin, tile.slots.count - 1u, 1u, tile.is_shared};
  MF_GLOBAL(const u32) split = tile.is_shared ? shared_x.split : x.split;
  MF_GLOBAL(const f32) sums = tile.is_shared ? shared_x.sums : x.sums;
  MmaFewTokens<TOKENS> tokens = {split, MF_CAST(const u32, sums), {0u}, {0u}};
  tokens.begin(t, e.cols, kGgmlSumWords, &slots);
  mma_few_multiply<kMmaGgml, TOKENS, ROWS, TYPE>(t, units, &part, e.cols, &tokens);
  out.template store<TOKENS, ROWS>(t, p, units, tile, slots);
}

// Group x has as many sets of tiles as MmaWalk::tiles says, of 8 rows of gate and of up, or of 16
// rows of down. Group y has a tile of TOKENS tokens of the shared expert, then one of as many
// slots. Up to 256 threads. `type`: that of GGML's, or kMmaAnyType.
#define MF_MMA_GATE_UP_FEW(suffix, BITS, TOKENS, type, threads)                                 \
  MF_FITS(threads, 2u)                                                                          \
  MF_KERNEL(mma_gate_up_##suffix, MmaExpertsFewParams, MF_READ(0, u64, entries),                \
            MF_READ(1, u32, list), MF_READ(2, u32, tiles), MF_READ(3, u32, split),              \
            MF_READ(4, f32, split_sums), MF_WRITE(5, f32, out), MF_WRITE(6, f32, shared_out)) { \
    MF_THREAD_EARLY;                                                                            \
    mma_gate_up_few<BITS, TOKENS, kMmaFewTiles, type>(t, p, entries, list, tiles, split,        \
                                                      split_sums, out, shared_out);             \
  }
#define MF_MMA_DOWN_FEW_W4(suffix, TOKENS, threads)                                           \
  MF_FITS(threads, 2u)                                                                        \
  MF_KERNEL(mma_down_##suffix, MmaExpertsFewParams, MF_READ(0, u64, entries),                 \
            MF_READ(1, u32, list), MF_READ(2, u32, tiles), MF_READ(3, f32, x),                \
            MF_WRITE(4, f32, out), MF_READ(5, f32, shared_x), MF_READ(6, f32, shared_gate),   \
            MF_WRITE(7, f32, shared_out)) {                                                   \
    MF_THREAD_EARLY;                                                                          \
    const MmaDownFewOut results = {out, shared_out, shared_gate};                             \
    mma_down_few<4u, TOKENS, kMmaFewTiles>(t, p, entries, list, tiles, x, shared_x, results); \
  }
#define MF_MMA_DOWN_FEW_GGML(suffix, TOKENS, type, threads)                                        \
  MF_FITS(threads, 2u)                                                                             \
  MF_KERNEL(mma_down_##suffix, MmaExpertsFewParams, MF_READ(0, u64, entries),                      \
            MF_READ(1, u32, list), MF_READ(2, u32, tiles), MF_READ(3, u32, split),                 \
            MF_READ(4, f32, split_sums), MF_WRITE(5, f32, out), MF_READ(6, u32, shared_split),     \
            MF_READ(7, f32, shared_sums), MF_READ(8, f32, shared_gate),                            \
            MF_WRITE(9, f32, shared_out)) {                                                        \
    MF_THREAD_EARLY;                                                                               \
    const MmaFewIntegers integers = {split, split_sums};                                           \
    const MmaFewIntegers of_shared = {shared_split, shared_sums};                                  \
    const MmaDownFewOut results = {out, shared_out, shared_gate};                                  \
    mma_down_few_ggml<TOKENS, kMmaFewTiles, type>(t, p, entries, list, tiles, integers, of_shared, \
                                                  results);                                        \
  }
#define MF_MMA_EXPERTS_FEW_GGML(suffix, TOKENS, type, threads) \
  MF_MMA_GATE_UP_FEW(suffix, kMmaGgml, TOKENS, type, threads)  \
  MF_MMA_DOWN_FEW_GGML(suffix, TOKENS, type, threads)
MF_MMA_GATE_UP_FEW(w4_t4, 4u, 4u, kMmaAnyType, kMmaFewThreads)
MF_MMA_GATE_UP_FEW(w4_t8, 4u, 8u, kMmaAnyType, kMmaThreads)
MF_MMA_GATE_UP_FEW(w4_t16, 4u, 16u, kMmaAnyType, kMmaThreads)
MF_MMA_DOWN_FEW_W4(w4_t4, 4u, kMmaFewThreads)
MF_MMA_DOWN_FEW_W4(w4_t8, 8u, kMmaThreads)
MF_MMA_DOWN_FEW_W4(w4_t16, 16u, kMmaThreads)
MF_MMA_EXPERTS_FEW_GGML(q4_0_t4, 4u, kGgml_q4_0, kMmaFewThreads)
MF_MMA_EXPERTS_FEW_GGML(q4_k_t4, 4u, kGgml_q4_k, kMmaFewThreads)
MF_MMA_EXPERTS_FEW_GGML(q6_k_t4, 4u, kGgml_q6_k, kMmaThreads)
MF_MMA_EXPERTS_FEW_GGML(mxfp4_t4, 4u, kGgml_mxfp4_gguf, kMmaFewThreads)
MF_MMA_EXPERTS_FEW_GGML(ggml_t4, 4u, kMmaAnyType, kMmaThreads)
MF_MMA_EXPERTS_FEW_GGML(ggml_t8, 8u, kMmaAnyType, kMmaThreads)
MF_MMA_EXPERTS_FEW_GGML(ggml_t16, 16u, kMmaAnyType, kMmaThreads)
#undef MF_MMA_GATE_UP_FEW
#undef MF_MMA_DOWN_FEW_W4
#undef MF_MMA_DOWN_FEW_GGML
#undef MF_MMA_EXPERTS_FEW_GGML

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
