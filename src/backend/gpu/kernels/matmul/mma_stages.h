// Columns on their way to products of many tokens: activations and codes are copied to shared
// memory a few stages ahead of the one that is multiplied.
#pragma once

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_product.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// 8 rows of a matrix from `row` on.
struct MmaRows {
  MF_GLOBAL(const u8) data;
  MF_GLOBAL(const u8) scales;
  MF_GLOBAL(const u8) biases;
  u32 row;
  u32 skew;  // as MmaMatrix

  /// Row `i` of them; past the last one of the matrix that one.
  MF_FN_MEMBER u32 at(u32 i, u32 rows) const { return row + i < rows ? row + i : rows - 1u; }
};

/// The matrix and the rows that a group's threads multiply together.
struct MmaMany {
  MmaMatrix m;
  u32 cols;
  u32 tile;
  u32 stages;
  u32 place_words;  // of one of GGML's types
  MF_GLOBAL(const u32) split;
  MF_GLOBAL(const f32) split_sums;
};

/// Pieces of 16 bytes of codes are swapped by halves of a row in two of four rows, which are read
/// together: so they are in different banks.
MF_FN u32 piece_half_swap(MF_T t) { return (t.lane >> 2u) & 2u; }

/// Pieces of 16 bytes of a row of x lie where wgmma looks for them, and where reading them meets no
/// conflicts.
MF_FN u32 piece_swizzle(u32 piece, u32 token) { return (piece ^ token) & 7u; }

/// A lane's part of the copies, stage after stage: of all threads' activations of TILES * 8 rows of
/// x, and of the codes of the SIMD group's 16 rows. Only a last stage may have a block too few.
template <u32 BITS, u32 TILES>
struct MmaStages {
  enum : u32 {
    kBlocks = 8u / BITS,                   // of columns
    kTokenPieces = kBlocks * 8u,           // of 16 bytes
    kTokens = kMmaThreads / kTokenPieces,  // that threads copy at once
    kAll = TILES * 8u,
    kOwn = kAll / kTokens,
    kSumWords = kBlocks * 2u,  // of a token
  };
  // 16 bytes of x as integers, words of the others: 32 bits are enough for what fits into memory.
  u32 x_at[kOwn];
  u32 sum_at;
  u32 code_at[2];
  u32 x_to;  // words of shared memory, in a stage
  u32 sum_to;
  u32 code_to;
  u32 into;  // where the stage begins that is copied next
  u32 end;   // of the stages
  u32 left;  // blocks

  MF_FN_MEMBER void begin(MF_T t, u32 cols, MF_LOCAL(const MmaRows) own_rows, u32 rows,
                          u32 stages) {
    MF_SHARED(u32) numbers = MF_SHARED_AT(t, u32, 0u);
    const u32 token = t.index / kTokenPieces;
    const u32 piece = t.index % kTokenPieces;
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      x_at[i] = numbers[token + i * kTokens] * (cols / 8u) + piece;
    }
    x_to = (piece / 8u * kMmaTokens + token) * kMmaBlockWords + piece_swizzle(piece, token) * 4u;
    const u32 of_sum = t.index / kSumWords % kAll;
    const u32 word = t.index % kSumWords;
    sum_at = numbers[of_sum] * (cols / kMmaBlock * 2u) + word;
    sum_to = kMmaStageSums + (word / 2u * kMmaTokens + of_sum) * 2u + word % 2u;
    const u32 own = t.lane / 4u;
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      code_at[i] = own_rows[i].at(own, rows) * (cols / 32u * BITS) + (t.lane & 3u) * 4u;
    }
    code_to = kMmaStageCodes + (t.simd * kMmaRows + own) * kMmaCodeWords +
              ((t.lane & 3u) ^ piece_half_swap(t)) * 4u;
    into = kMmaStagesBegin;
    end = kMmaStagesBegin + stages * kMmaStageWords;
    left = cols / kMmaBlock;
  }
  MF_FN_MEMBER u32 after(u32 stage) const {
    return stage + kMmaStageWords < end ? stage + kMmaStageWords
                                        : static_cast<u32>(kMmaStagesBegin);
  }
  /// Copies a stage of those that are left; ends a batch of copies in any case.
  MF_FN_MEMBER void issue(MF_T t, MmaMany p, MF_LOCAL(const MmaRows) own_rows) {
    if (left > 0u) {
      issue_x(t, p.split, p.split_sums);
      issue_codes(t, own_rows, p.m.wide);
      advance();
    }
    copies_commit(t);
  }
  MF_FN_MEMBER void advance() {
    left -= left < static_cast<u32>(kBlocks) ? left : static_cast<u32>(kBlocks);
    into = after(into);
  }
  MF_FN_MEMBER void issue_x(MF_T t, MF_GLOBAL(const u32) split, MF_GLOBAL(const f32) sums) {
    issue_integers(t, split);
    if (t.index < kAll * kSumWords && t.index % kSumWords / 2u < left) {
      copy_async1(t, MF_SHARED_AT(t, u32, (into + sum_to) * 4u), MF_CAST(const u32, sums) + sum_at);
    }
    sum_at += kSumWords;
  }
  MF_FN_MEMBER void issue_integers(MF_T t, MF_GLOBAL(const u32) split) {
    const bool exists = t.index % kTokenPieces / 8u < left;
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      if (exists) {
        copy_async4(t, MF_SHARED_AT(t, u32, (into + x_to + i * kTokens * kMmaBlockWords) * 4u),
                    split + static_cast<u64>(x_at[i]) * 4u);
      }
      x_at[i] += kTokenPieces;
    }
  }
  MF_FN_MEMBER void issue_codes(MF_T t, MF_LOCAL(const MmaRows) own_rows, u32 wide) {
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (into + code_to) * 4u);
    const bool exists = (t.lane & 3u) * kBlocks / 4u < left;
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      MF_GLOBAL(const u32) from = MF_CAST(const u32, own_rows[i].data) + code_at[i];
      MF_SHARED(u32) own_to = to + i * (kMmaHalfRows * kMmaCodeWords);
      if (exists && wide != 0u) copy_async4(t, own_to, from);
      if (exists && wide == 0u) {
        MF_UNROLL
        for (u32 k = 0u; k < 4u; ++k) copy_async1(t, own_to + k, from + k);
      }
      code_at[i] += kMmaCodeWords;
    }
  }
};

/// A lane's codes of block `within` of a stage: of two rows, 8 apart, two octets each. `codes`:
/// those of the stage's first row.
template <u32 BITS>
MF_FN void load_stage_codes(MF_T t, MF_LOCAL(W2) octets, MF_SHARED(u32) codes, u32 within) {
  const u32 swap = piece_half_swap(t);
  const u32 piece = BITS == 4u ? (within * 2u + (t.lane & 3u) / 2u) ^ swap : (t.lane & 3u) ^ swap;
  const u32 word = BITS == 4u ? (t.lane & 1u) * 2u : 0u;
  MF_SHARED(u32)
  own = codes + ((t.simd * kMmaRows + t.lane / 4u) * kMmaCodeWords + piece * 4u + word);
  load_octets<BITS>(octets, own, 8u * kMmaCodeWords);
}

/// Scales and biases of a SIMD group's 16 rows for the 8 blocks of a split: half of the lanes have
/// the scales of a row each, the others the biases. On their way in registers, then in shared
/// memory as f32.
struct MmaScales {
  u32 words[4];

  MF_FN_MEMBER void load(MF_T t, MmaMatrix m, MF_LOCAL(const MmaRows) own_rows, u32 cols,
                         u32 block) {
    const bool is_first = t.lane % kMmaRows < kMmaHalfRows;
    const u32 i = t.lane % kMmaHalfRows;
    const u32 own = is_first ? own_rows[0].at(i, m.rows) : own_rows[1].at(i, m.rows);
    MF_GLOBAL(const u8) scales = is_first ? own_rows[0].scales : own_rows[1].scales;
    MF_GLOBAL(const u8) biases = is_first ? own_rows[0].biases : own_rows[1].biases;
    load_row_scales(words, m, t.lane < kMmaRows ? scales : biases, cols, own, block);
  }
  static MF_FN_MEMBER MF_SHARED(u32) of_simd(MF_T t) {
    return MF_SHARED_AT(t, u32, (kMmaScalesBegin + t.simd * kMmaManyScaleWords) * 4u);
  }
  MF_FN_MEMBER void place(MF_T t, u32 format) const {
    MF_SHARED(u32) to = of_simd(t) + (t.lane % kMmaRows * 2u + t.lane / kMmaRows);
    simd_barrier(t);
    MF_UNROLL
    for (u32 b = 0u; b < kMmaSplitBlocks; ++b) {
      to[b * (kMmaRows * 2u)] = as_bits(mma_scale(words[b / 2u], b % 2u, format));
    }
    simd_barrier(t);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
