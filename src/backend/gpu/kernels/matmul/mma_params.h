// Products on matrix units: parameters, and the shapes that kernels and plans agree on.
#pragma once

#include "backend/gpu/kernels/norm/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

/// Products on matrix units: SIMD groups own 16 rows; columns come in blocks of 64, of one scale a
/// row, and blocks in splits of 8 that are summed on their own, then in order. A product's bits
/// depend on that, not on how many tokens there are.
enum : u32 {
  kMmaRows = 16,
  kMmaBlock = 64,
  kMmaSplitBlocks = 8,
  kMmaSplit = kMmaBlock * kMmaSplitBlocks,
  kMmaThreads = 256,
  kMmaSimds = kMmaThreads / 32,
  kMmaMatricesMax = 4,
  kMmaBitWords = kMmaSplit / 32 + 2,  // of shared memory for a bit of a row's split: 2 against
                                      // conflicts
  kMmaScaleWords = kMmaSplitBlocks,   // for its scales and biases
  kMmaBlockWords = kMmaBlock / 2,     // of a block's activations: two bytes each
};

/// Products of single tokens: splits on their way to a SIMD group, at most; and the zeros that
/// lanes read where others have activations.
enum : u32 { kMmaPlaces = 2, kMmaZeroWords = 48 };

/// Products of few tokens: a SIMD group has kMmaFewTiles tiles of 16 rows, or one where codes may
/// have 8 bits, and a split. It leaves its sums in its place: of a token those of 16 rows, in so
/// many words, which are in different banks.
enum : u32 { kMmaFewTiles = 2, kMmaFewTokens = 32, kMmaFewRowWords = 20 };
/// Tiles of four slots have registers for so many threads, twice: for the five groups of 128 that
/// shared memory has room for, though groups may have 256.
enum : u32 { kMmaFewThreads = 320 };

/// Groups of kMmaThreads that a multiprocessor has registers for, by the bits of matrices, or where
/// the kernel knows GGML's type. Little may go to memory instead: shared memory leaves next to no
/// cache, and one load of it in the loop costs an H200 a twentieth. Groups that make no norm may
/// have twice the threads, or thrice.
enum : u32 {
  kMmaFits4 = 4,
  kMmaFits8 = 2,
  kMmaFitsGgml = 2,
  kMmaFitsKnown = 3,
  kMmaThreadsMax = 2 * kMmaThreads,
  kMmaKnownThreads = kMmaFitsKnown * kMmaThreads,
};

/// Where templates take the bits of codes: any of GGML's types, which the matrix tells; or one of
/// them, by its number. FP8 comes as one of them, whose rows are codes alone.
enum : u32 { kMmaGgml = 0, kMmaFp8 = 2 * kFormatGgml, kMmaAnyType = 0 };

/// Products of many tokens: SIMD groups own 16 rows, 8 of one place and 8 of another. Shared memory
/// holds the numbers of the rows of x and of the rows they become, the scales and biases of a split
/// for each SIMD group, and stages of columns. A stage is two blocks of 4 bits or one of 8:
/// activations, which begin at multiples of 1024 bytes, sums and factors, codes.
enum : u32 {
  kMmaHalfRows = kMmaRows / 2,
  kMmaGroupRows = kMmaSimds * kMmaRows,
  kMmaTokens = 64,  // that a SIMD group multiplies at once
  kMmaStageBlocks = 2,
  kMmaCodeWords = 16,  // of a row
  kMmaStageSums = kMmaStageBlocks * kMmaTokens * kMmaBlockWords,
  kMmaStageCodes = kMmaStageSums + kMmaStageBlocks * kMmaTokens * 2,
  kMmaStageWords = kMmaStageCodes + kMmaGroupRows * kMmaCodeWords,
  kMmaManyScaleWords = kMmaSplitBlocks * kMmaRows * 2,
  kMmaScalesBegin = 2 * kMmaTokens,
  kMmaStagesBegin = (kMmaScalesBegin + kMmaSimds * kMmaManyScaleWords + 255) / 256 * 256,
  kMmaStages = 2,
  kMmaStagesOfFew = 3,  // tokens a matrix, which wait longer for it than they multiply
};

/// GGML's types need more of a block of activations than the integers, as f32: the sums of both
/// halves and the factor, a word behind, then the sums of the quarters.
enum : u32 { kGgmlSumWords = 8, kGgmlSumFactor = 2, kGgmlSumQuarters = 4 };

/// Their shared memory begins with a grid that codes choose from, behind the rows' numbers. For
/// single tokens activations follow. For many tokens stages of a few blocks follow, each with
/// activations, then each of their sums for all tokens. There are three, as a stage may still be
/// multiplied where the next one has begun and another is brought.
enum : u32 {
  kGgmlTokens = 128,  // that a SIMD group multiplies at once, at most; or kMmaTokens
  kGgmlGrid = 2 * kGgmlTokens,
  kGgmlGridWords = 1024,
  kGgmlWideGridWords = 2048,  // of IQ1, for single tokens
  kGgmlStagesBegin = (kGgmlGrid + kGgmlGridWords + 255) / 256 * 256,
  kGgmlTokenWords = 40,  // of a block: kMmaBlockWords, then kGgmlSumWords
  kGgmlStageBlocksMax = 4,
  kGgmlStages = 3,
};
static_assert(u32{kGgmlTokenWords} == u32{kMmaBlockWords} + kGgmlSumWords, "and no more");
static_assert(kMmaTokens * u32{kGgmlTokenWords} % 256u == 0u, "blocks begin as stages do");

/// One matrix of 4 or 8 bits, or of one of GGML's types.
struct MmaMatrix {
  u32 rows;
  u32 bits;  // or the type's number, from kFormatGgml on; kMmaFp8 or a narrow group's
  u16 group_shift;
  u16 row_shift;    // of FP8, as MatrixLayout
  u32 scales;       // kFormatF16, kFormatBf16 or kFormatF32; kScalesAndZeros; of FP8 any
  u32 wide;         // rows begin on 16-byte boundaries
  u32 wide_scales;  // so do the scales of every split, or of narrow groups every row's
  // The rest is for GGML's types: bytes from a multiple of 32 to the first row, of a row, and of a
  // split; words of shared memory from a row of a split to the next.
  u32 skew;
  u32 row_bytes;
  u32 split_bytes;
  u32 row_words;
};

/// How a group of products of single tokens walks over its tiles of 16 rows: SIMD groups take
/// splits of tiles in turn, each with the next one on its way to a place of its own.
struct MmaWalk {
  u32 splits;       // of a row
  u32 tiles;        // of a group,
  u32 full;         // of so many groups; the others have one less
  u32 batch;        // tiles between two sums over splits
  u32 simds;        // that take splits
  u32 tile_step;    // how far the splits of a SIMD group lie apart: tiles,
  u32 split_step;   // and splits
  u32 places;       // kMmaPlaces, or 1 if no SIMD group takes more than one split
  u32 by_splits;    // SIMD groups stage the splits that they take first, before others are there
  u32 place_words;  // of a split on its way
  u32 integers;     // where activations begin in shared memory: behind a grid, or at 0
  u32 in_order;     // columns of octets lie in order: for GGML's types
  u32 more;         // where words of others do
  u32 begin;        // and where places do
};
static_assert(kMmaFewTokens * u32{kMmaFewRowWords} <= 4u * kMmaRows * kMmaBitWords,
              "sums of few tokens fit where codes were");

/// Up to four matrices times the same rows of x.
struct MmaLinearParams {
  MmaMatrix matrices[kMmaMatricesMax];
  u32 first_group[kMmaMatricesMax];  // of the groups in x
  u64 x_stride;
  u64 out_strides[kMmaMatricesMax];
  u32 count;
  u32 cols;
  MmaWalk walk;
  u32 wide;
  u32 tokens;
  u32 tile;                      // tokens that a group multiplies: kMmaTokens, or kGgmlTokens
  u32 stages;                    // of many tokens; for GGML's types blocks of a stage
  u32 conv_matrix;               // whose rows go on through a convolution; kMmaMatricesMax: none
  u32 conv_taps;                 // 1: through x * sigmoid(x) instead
  u32 has_bias;                  // of single tokens: bit i says so of matrix i,
  u64 bias_at[kMmaMatricesMax];  // whose bias is so many numbers behind the binding's
};

static_assert(static_cast<u32>(kMmaThreads) == static_cast<u32>(kNormThreads),
              "groups of products make norms");

/// Norms that products make by themselves. With 7168 columns they took an H200 6.3 us in every
/// group, against 3.2 in a launch of their own.
enum : u32 { kMmaVectors = 4, kMmaMadeColsMax = kMmaVectors * 4 * kMmaThreads };
struct MmaNormedParams {
  MmaLinearParams linear;  // x_stride and wide are not used: rows lie one behind another
  u32 adds;
  f32 epsilon;
};

/// The order of a block's bytes in memory: as wgmma reads them; blocks' halves apart, with sums of
/// their parts, for GGML's types; or what a lane multiplies in a row, for few tokens, of both. By
/// nibbles that is what both halves of four bytes multiply: columns 16 apart.
enum : u32 {
  kRowsForTeams = 0,
  kRowsByHalves = 1,
  kRowsByLanes = 2,
  kRowsByLanesOfHalves = 3,
  kRowsByNibbles = 7,
  kRowsNone = 8
};
/// f32 numbers as integers of two bytes.
struct QuantizeRowsParams {
  u64 x_stride;
  u32 cols;
  u32 wide;
  u32 order;
};

}  // namespace gpu
}  // namespace moeflux
