// Activations on their way to products of GGML's types for many tokens: mma_stages.h with the sums
// that these types need.
#pragma once

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_stages.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A lane's part of the copies of TILES * 8 rows of x, stage after stage.
template <u32 TILES>
struct GgmlStages {
  enum : u32 {
    kPieces = 8,                      // of 16 bytes of a token
    kTokens = kMmaThreads / kPieces,  // that threads copy at once
    kAll = TILES * 8u,
    kOwn = kAll / kTokens,
    kSums = 4,  // of a token, that a thread copies of
    kSumTokens = kMmaThreads / kSums,
    kOwnSums = (kAll + kSumTokens - 1u) / kSumTokens,
  };
  // 16 bytes of x as integers, words of the sums: 32 bits are enough for what fits into memory.
  u32 x_at[kOwn];
  u32 sum_at[kOwnSums];
  u32 x_to;  // words of shared memory, in a block
  u32 sum_to;
  u32 into;  // where the stage begins that is copied next
  u32 left;  // blocks

  MF_FN_MEMBER void begin(MF_T t, u32 cols, u32 tile) {
    MF_SHARED(u32) numbers = MF_SHARED_AT(t, u32, 0u);
    const u32 token = t.index / kPieces;
    const u32 piece = t.index % kPieces;
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      x_at[i] = numbers[token + i * kTokens] * (cols / 8u) + piece;
    }
    x_to = token * kMmaBlockWords + piece_swizzle(piece, token) * 4u;
    const u32 of_sum = t.index / kSums % kAll;
    const u32 word = t.index % kSums;
    MF_UNROLL
    for (u32 i = 0u; i < kOwnSums; ++i) {
      sum_at[i] = numbers[of_sum + i * kSumTokens] * (cols / kMmaBlock * kGgmlSumWords) + word;
    }
    sum_to = tile * (kMmaBlockWords + word) + of_sum;
    into = kGgmlStagesBegin;
    left = cols / kMmaBlock;
  }
  /// The stage behind `stage`.
  static MF_FN_MEMBER u32 after(u32 stage, MmaMany p) {
    const u32 words = p.stages * (p.tile * kGgmlTokenWords);
    const u32 next = stage + words;
    return next < kGgmlStagesBegin + kGgmlStages * words ? next
                                                         : static_cast<u32>(kGgmlStagesBegin);
  }
  /// Copies a stage of the blocks that are left; ends a batch of copies in any case. `quarters`:
  /// with their sums.
  MF_FN_MEMBER void issue(MF_T t, MmaMany p, bool quarters) {
    const u32 count = left < p.stages ? left : p.stages;
    MF_ROLLED
    for (u32 b = 0u; b < count; ++b) {
      const u32 to = into + b * (p.tile * kGgmlTokenWords);
      MF_UNROLL
      for (u32 i = 0u; i < kOwn; ++i) {
        copy_async4(t, MF_SHARED_AT(t, u32, (to + x_to + i * kTokens * kMmaBlockWords) * 4u),
                    p.split + static_cast<u64>(x_at[i]) * 4u);
        x_at[i] += kPieces;
      }
      MF_UNROLL
      for (u32 i = 0u; i < kOwnSums; ++i) {
        if (t.index < kAll * kSums) issue_sums(t, to, i, p, quarters);
        sum_at[i] += kGgmlSumWords;
      }
    }
    left -= count;
    into = after(into, p);
    copies_commit(t);
  }
  MF_FN_MEMBER void issue_sums(MF_T t, u32 block, u32 i, MmaMany p, bool quarters) const {
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (block + sum_to + i * kSumTokens) * 4u);
    MF_GLOBAL(const u32) from = MF_CAST(const u32, p.split_sums) + sum_at[i];
    if (t.index % kSums <= u32{kGgmlSumFactor}) copy_async1(t, to, from);
    if (quarters) copy_async1(t, to + kGgmlSumQuarters * p.tile, from + kGgmlSumQuarters);
  }
  /// For the stage that was copied last.
  static MF_FN_MEMBER void wait(MF_T t) {
    copies_wait<0u>(t);
    copies_publish(t);
    barrier(t);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
