// Products with tiled weights: activations prepared once, interleaved in blocks where many tokens
// meet the same weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/cpu/kernel_args.h"
#include "backend/cpu/kernels/tile_table.h"
#include "backend/cpu/spaces.h"
#include "quant/weight.h"

namespace moeflux::cpu {

/// How `tokens` tokens are cut into blocks of nearly equal sizes.
struct BlockPlan {
  int64_t tokens = 0;
  int64_t blocks = 0;

  static BlockPlan of(int64_t tokens, int64_t block_tokens) {
    return {tokens, (tokens + block_tokens - 1) / block_tokens};
  }
  int64_t begin(int64_t block) const { return tokens * block / blocks; }
  int64_t size(int64_t block) const { return begin(block + 1) - begin(block); }
};

/// Shape of the activations that meet a matrix.
struct TileShape {
  const TileKernels* kernels = nullptr;
  int64_t cols = 0;
  int64_t group_size = 0;

  int64_t groups() const { return cols / group_size; }
  int64_t value_bytes() const { return cols * kernels->value_bytes; }
  /// Whether the interleaved form is needed.
  static bool wants_blocks(int64_t tokens) { return tokens > kTileFewTokens; }
  /// Bytes of one interleaved block of up to `tokens` tokens, a multiple of 64.
  size_t block_bytes(int64_t tokens) const;
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

/// Prepared activations of some rows: tokens() entries into memory that only grows.
class TileRows {
 public:
  /// Makes room for `count` rows; fill() writes them, from any thread.
  void reset(const TileShape& shape, int64_t count);
  void fill(int64_t row, const float* x);
  const TileToken* tokens() const { return tokens_.data(); }
  const TileShape& shape() const { return shape_; }

 private:
  TileShape shape_;
  AlignedSpace values_;
  std::vector<float> params_;
  std::vector<TileToken> tokens_;
};

/// Interleaves tokens, of which `tokens` points to `count`, into `space` of block_bytes(count).
TileBlock pack_block(const TileShape& shape, const TileToken* tokens, int64_t count,
                     std::byte* space);

/// out[t][r - out_row] = w[r] . x[t] for the rows of panels [panel_begin, panel_end). Either tokens
/// (few) or blocks are given.
struct TileProduct {
  const TileKernels* kernels;
  TileMatrix w;
  const TileToken* tokens;
  int64_t count;
  std::span<const TileBlock> blocks;
  float* const* out;
  int64_t panel_begin;
  int64_t panel_end;
  int64_t out_row;
  const uint8_t* next;  // tiles that will be read after these, or null
};
void multiply(const TileProduct& product);

/// A weight in the terms of kernels: tiles, or, where `block` is not null, rows of such blocks.
TileMatrix tile_matrix(const Weight& weight, const BlockKernel* block);

/// Columns of one factor of q16's activations.
constexpr int64_t kUnitCols = 64;
/// Whether q16 multiplies rows of so many columns: the formats that GPUs' matrix units multiply
/// (gpu/mma_plans.h). The others are multiplied with f32 activations, as there.
bool has_unit_products(const QuantFormat& format, int64_t cols);

/// The kind of blocks that a format has; nullopt for formats of other kinds.
std::optional<BlockKind> block_kind(const QuantFormat& format);

}  // namespace moeflux::cpu
