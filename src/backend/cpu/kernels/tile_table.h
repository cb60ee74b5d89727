// Arguments of the kernels for tiled weights (quant/formats/tiled.h) and the table they are called
// through. Plain data only, like kernel_table.h.
//
// Definitions. Every result is one chain of f32 operations per (row, token), over the groups g of
// columns in order, starting from 0; no instruction set, number of tokens or cut changes its bits.
// With int8 activations x = x_scale[g] * code, dot[g] is the exact integer sum of products and
//   acc = fma(w_scale[g] * x_scale[g], float(dot[g]), acc)
//   acc = fma(w_bias[g], x_sum[g], acc),       x_sum[g] = x_scale[g] * float(sum of the codes)
// With f32 activations, dot[g] is a chain of fma(code, x, dot) over the columns in order from 0 and
//   acc = fma(w_scale[g], dot[g], acc)
//   acc = fma(w_bias[g], x_sum[g], acc),       x_sum[g] = sum of x, four interleaved sums s by
// column: (s[0] + s[1]) + (s[2] + s[3]). The portable kernels round a product before they add it.
// With 16-bit activations (q16) it is what backend/unit_text.h says, of weights whose columns are
// whole blocks of 64 and whose tiles have scales of whole blocks.
//
// Blocks (BlockKind) are multiplied as they are stored, by rounded activations only. A panel of
// sixteen rows is filled, some columns at a time, with lines of unsigned 8-bit codes and the scales
// and biases that make them the stored numbers. The int8 definition holds for these.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"

namespace moeflux::cpu {

constexpr int64_t kTilePanelRows = 16;
constexpr int64_t kTileGroupMin = 16;
constexpr int64_t kTileGroupMax = 128;
/// Up to so many tokens are multiplied as the weights are read; more share unpacked weights.
constexpr int64_t kTileFewTokens = 4;
/// Tokens of one call of many(), at most.
constexpr int64_t kTileManyTokens = 512;

/// Storage formats that are multiplied as they are stored: GGML's types, which are blocks, and rows
/// of affine groups by bits and group size.
enum class BlockKind : uint8_t {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kIq2Xxs,
  kIq2Xs,
  kIq2S,
  kIq3Xxs,
  kIq3S,
  kIq1S,
  kIq1M,
  kMxfp4,
  kNvfp4,
  kQ1_0,
  kQ2_0,
  kQ2_0Of128,
  kTq1_0,
  kTq2_0,
  kAffine4x32,
  kAffine4x64,
  kAffine4x128,
  kAffine8x32,
  kAffine8x64,
  kAffine8x128,
};
constexpr int kBlockKinds = 32;
/// Columns that are filled at a time, at most: a multiple of every block.
constexpr int64_t kBlockFillCols = 256;

/// Fills columns of one panel from blocks.
struct BlockFillArgs {
  const uint8_t* rows;  // the first block of the first row
  int64_t row_bytes;
  int64_t blocks;  // of each row
  uint8_t* lines;  // 64 bytes for every four columns, as tiles of 8-bit codes lie
  float* scales;   // [group][row], groups `stride` apart
  float* biases;
  int64_t stride;
  // Scales and biases of affine groups, from the first group of the first row on.
  const uint8_t* scale_rows = nullptr;
  const uint8_t* bias_rows = nullptr;
  int64_t param_row_bytes = 0;
  ElementType param_type = ElementType::kF32;
};

struct TileFewArgs;

/// How one instruction set reads one kind of blocks.
struct BlockKernel {
  int32_t elements;  // of a block
  int32_t bytes;
  int32_t group_size;  // columns that share a scale: 16 to 128
  int32_t code_bits;   // codes are below 2^code_bits: 4 to 8
  void (*fill)(const BlockFillArgs& args);
  void (*one_token)(const TileFewArgs& args);  // null in portable kernels
  /// The same with 16-bit activations; null where these do not meet such blocks, too.
  void (*one_token_units)(const TileFewArgs& args);
};

/// By BlockKind.
struct BlockKernels {
  BlockKernel of[kBlockKinds];
};

/// Tiles of an affine matrix, or the rows of one of blocks.
struct TileMatrix {
  const uint8_t* tiles;
  int64_t cols;
  ElementType type;  // of scales and biases
  int32_t bits;      // 4 or 8
  int32_t group_size;
  const BlockKernel* block = nullptr;   // of what is multiplied as it is stored; bits say nothing
  float outer_scale = 1.0f;             // a factor of all numbers; of NVFP4 only
  const uint8_t* scale_rows = nullptr;  // of row-major affine groups
  const uint8_t* bias_rows = nullptr;
};

/// A token's activations as prepare() leaves them.
struct TileToken {
  // Natural order: int8 or f32 [cols]; q16 [cols / 16][2][16], the 256s of 16 columns, then the
  // ones.
  const void* values;
  const float* scales;  // [groups]; not of f32; q16 has the factor of its block
  const float* sums;    // [groups]; of q16 of the integers
};

/// The activations of up to block_tokens tokens, interleaved so that one pointer walks them.
struct TileBlock {
  const void* values;   // [cols / chunk][tokens][chunk], chunk = TileKernels::chunk_of() values
  const float* scales;  // [groups][tokens]; not of f32
  const float* sums;    // [groups][tokens]
  int64_t tokens;
};

/// out[t][r - out_row] = w[r] . x[t] for the rows of panels [panel_begin, panel_end).
struct TileFewArgs {
  TileMatrix w;
  const TileToken* x;
  int64_t tokens;  // 1 to kTileFewTokens
  int64_t panel_begin;
  int64_t panel_end;
  float* const* out;
  int64_t out_row;
  const uint8_t* next;  // memory to prefetch, or null: the bytes behind these
};

struct TileManyArgs {
  TileMatrix w;
  const TileBlock* x;
  int64_t blocks;  // at most kTileManyTokens tokens in all
  int64_t panel_begin;
  int64_t panel_end;
  float* const* out;  // per token of all blocks
  int64_t out_row;
  const uint8_t* next;  // tiles like w's that the caller will read after these, or null
};

/// One instruction set's products of one kind of activations. Constant data.
struct TileKernels {
  const char* name;
  int64_t value_bytes;   // of one prepared activation: 1 (int8), 2 (q16) or 4
  int64_t chunk;         // values of a token that stay together in a block, if a group has them
  int64_t block_tokens;  // of one block, at most; the memory of a block has room for as many
  /// Int8: per group, scale = largest magnitude / 127, codes = x / scale rounded to nearest. A
  /// group with an infinity or a NaN gets scale NaN; one too small for f32 arithmetic counts as
  /// zeros. F32: copies x and sums it up; leaves scales alone. Q16: groups are of 64 columns at
  /// most.
  void (*prepare)(const float* x, int64_t cols, int64_t group_size, void* values, float* scales,
                  float* sums);
  void (*few)(const TileFewArgs& args);
  void (*many)(const TileManyArgs& args);
  const BlockKernels* blocks;

  constexpr int64_t chunk_of(int64_t group_size) const {
    return chunk < group_size ? chunk : group_size;
  }
};

extern const TileKernels kGenericInt8Tiles;
extern const TileKernels kAvx2Int8Tiles;
extern const TileKernels kAvxVnniInt8Tiles;
extern const TileKernels kAvx512VnniInt8Tiles;
extern const TileKernels kAvx512AmxInt8Tiles;
extern const TileKernels kNeonDotprodInt8Tiles;
extern const TileKernels kNeonI8mmInt8Tiles;

extern const TileKernels kGenericQ16Tiles;
extern const TileKernels kAvx2Q16Tiles;
extern const TileKernels kAvxVnniQ16Tiles;
extern const TileKernels kAvx512VnniQ16Tiles;
extern const TileKernels kNeonDotprodQ16Tiles;

// Tables of instruction sets that others extend.
extern const BlockKernels kAvx512VnniBlocks;
extern const BlockKernels kNeonDotprodBlocks;

extern const TileKernels kGenericF32Tiles;
extern const TileKernels kAvx2F32Tiles;
extern const TileKernels kAvx512F32Tiles;
extern const TileKernels kNeonF32Tiles;

}  // namespace moeflux::cpu
