// Rows of a quantised matrix times a few tokens, on matrix units: a SIMD group has tiles of 16 rows
// and one split of their columns. So all of a small matrix is on its way at once, on all
// multiprocessors, and before the activations are there.
#pragma once

#include "backend/gpu/kernels/matmul/mma_few_ggml.h"
#include "backend/gpu/kernels/matmul/mma_few_sums.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The units of a group's work: its sets of ROWS tiles, and of each all splits. SIMD groups take
/// them in turn, and each unit has ROWS places of its own.
struct MmaFewUnits {
  u32 splits;
  u32 sets;
  u32 place_words;
  u32 begin;

  static MF_FN_MEMBER MmaFewUnits of_walk(MmaWalk walk) {
    const MmaFewUnits units = {walk.splits, walk.tiles, walk.place_words, walk.begin};
    return units;
  }
  MF_FN_MEMBER u32 count() const { return splits * sets; }
  /// Blocks of a unit: the first one, and how many.
  MF_FN_MEMBER u32 first_block(u32 unit) const { return unit % splits * kMmaSplitBlocks; }
  MF_FN_MEMBER u32 blocks(u32 unit, u32 cols) const {
    const u32 left = cols / kMmaBlock - first_block(unit);
    return left < kMmaSplitBlocks ? left : static_cast<u32>(kMmaSplitBlocks);
  }
};

/// Brings all rows of a group under way.
template <u32 BITS, u32 ROWS, u32 TYPE>
MF_FN void mma_few_issue(MF_T t, MmaFewUnits units, MF_LOCAL(const MmaPart<BITS>) part,
                         u32 first_tile) {
  MF_ROLLED
  for (u32 unit = t.simd; unit < units.count(); unit += t.simds) {
    const u32 set = unit / units.splits;
    MF_UNROLL
    for (u32 r = 0u; r < ROWS; ++r) {
      part->template issue<TYPE>(t, units.begin + (unit * ROWS + r) * units.place_words,
                                 first_tile + set * ROWS + r, unit - set * units.splits);
    }
  }
  copies_commit(t);
}

/// Multiplies them. Ends with a barrier.
template <u32 BITS, u32 TOKENS, u32 ROWS, u32 TYPE, class Tokens>
MF_FN void mma_few_multiply(MF_T t, MmaFewUnits units, MF_LOCAL(const MmaPart<BITS>) part, u32 cols,
                            MF_LOCAL(const Tokens) tokens) {
  MmaFewSums<BITS, TOKENS, ROWS, TYPE> sums;
  sums.begin(t, units.first_block(t.simd), units.blocks(t.simd, cols), tokens);
  copies_wait<0u>(t);
  simd_barrier(t);
  MF_ROLLED
  for (u32 unit = t.simd; unit < units.count(); unit += t.simds) {
    const u32 at = units.begin + unit * ROWS * units.place_words;
    const u32 first = units.first_block(unit);
    const u32 count = units.blocks(unit, cols);
    if (unit != t.simd) sums.begin(t, first, count, tokens);
    sums.multiply(t, part, at, units.place_words, first, count, tokens);
    simd_barrier(t);
    sums.store(t, at);
  }
  barrier(t);
}

/// The sum of row `row` of the group's for token `token`, over splits in order.
template <u32 TOKENS, u32 ROWS>
MF_FN f32 mma_few_sum(MF_T t, MmaFewUnits units, u32 row, u32 token) {
  const u32 tile = row / kMmaRows;
  const u32 own = tile % ROWS * TOKENS + token;
  MF_SHARED(f32)
  from = MF_SHARED_AT(t, f32,
                      (units.begin + tile / ROWS * units.splits * ROWS * units.place_words +
                       own * kMmaFewRowWords + row % kMmaRows) *
                          4u);
  f32 sum = 0.0f;
  for (u32 split = 0u; split < units.splits; ++split) {
    sum = sum + from[split * ROWS * units.place_words];
  }
  return sum;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
