// Rows rounded, block by block, to numbers that a narrow format can hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux {

/// The format that a block of columns is rounded to: its scale, and numbers of few bits times it.
enum class BlockRounding : uint8_t {
  kE4m3,      // 32 columns, a power of two times e4m3
  kE2m1,      // 32 columns, a power of two times e2m1
  kE2m1E4m3,  // 16 columns, e4m3 times e2m1
};

/// Columns of a block.
constexpr int64_t rounded_columns(BlockRounding to) {
  return to == BlockRounding::kE2m1E4m3 ? 16 : 32;
}

namespace ops {

/// Rounds each block of x f32 [..., cols] in place, to the nearest and ties to even. A power of two
/// is the least one that is not below the largest of the block, which counts as 1e-4 (e4m3) or 6 *
/// 2^-126 (e2m1) at least, divided by the format's largest number, 448 or 6. The e4m3 scale is that
/// quotient, 2^-9 at least and 448 at most, rounded too. Numbers above what fits become the largest
/// that does.
struct RoundBlocks {
  static constexpr std::string_view kName = "round_blocks";
  Tensor x;
  BlockRounding to = BlockRounding::kE4m3;

  Status check() const {
    return Conditions(kName)
        .is_float("x", x)
        .holds("x", x, x.shape.rank() > 0 && x.shape.back() % rounded_columns(to) == 0,
               "columns in whole blocks")
        .status();
  }
  std::string text() const { return line_of(kName, x); }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kUpdate, "x", x);
  }
};

}  // namespace ops
}  // namespace moeflux
