// The tiled order of affine matrices: what a processor that multiplies many rows at once wants to
// stream. Same codes, scales and biases as formats/affine.h, same bytes in all, one stretch of
// memory read from front to back.
//
// Sixteen rows make a panel; panels follow one another. Within a panel groups of columns follow one
// another, and each group is its codes in lines of 64 bytes, then sixteen scales, then sixteen
// biases, in the format's dtype. Byte 4 * r + b of line j holds, of row r of the panel,
//   4 bits: code 8 * j + b in its low half and code 8 * j + 4 + b in its high half;
//   8 bits: code 4 * j + b.
// So a 32-bit lane belongs to one row, and its four bytes meet four neighbouring activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/format.h"

namespace moeflux::tiled {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kLineBytes = 64;

/// True when an affine matrix of this format may be stored in tiles: 4 or 8 bits, whole panels.
constexpr bool is_tileable(const QuantFormat& format, int64_t rows) {
  return format.is_affine() && (format.bits == 4 || format.bits == 8) && rows % kPanelRows == 0;
}

/// Bytes of the codes of one group of a panel: whole lines.
constexpr int64_t group_code_bytes(const QuantFormat& format) {
  return kPanelRows * format.group_size * format.bits / 8;
}
/// Bytes of one group of a panel: codes, scales, biases. A multiple of 64.
constexpr int64_t group_bytes(const QuantFormat& format) {
  return group_code_bytes(format) + 2 * kPanelRows * (format.dtype == DType::kF32 ? 4 : 2);
}
constexpr int64_t panel_bytes(const QuantFormat& format, int64_t cols) {
  return cols / format.group_size * group_bytes(format);
}

/// The three parts of a row-major affine matrix.
struct RowMajorParts {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  std::span<const std::byte> biases;
};

/// Reorders a tileable [rows, cols] matrix. `out` takes weight_bytes() bytes and must not
/// overlap the parts. `format.order` is ignored.
void tile(std::span<std::byte> out, const RowMajorParts& parts, const QuantFormat& format,
          int64_t rows, int64_t cols);

/// The inverse of tile().
void untile(std::span<std::byte> codes, std::span<std::byte> scales, std::span<std::byte> biases,
            std::span<const std::byte> tiles, const QuantFormat& format, int64_t rows,
            int64_t cols);

/// Code `col` of row `row`, both of the whole matrix of `cols` columns.
uint32_t code_at(const std::byte* tiles, const QuantFormat& format, int64_t cols, int64_t row,
                 int64_t col);

struct GroupParams {
  float scale;
  float bias;
};
/// Scale and bias of group `group` of row `row`.
GroupParams params_at(const std::byte* tiles, const QuantFormat& format, int64_t cols, int64_t row,
                      int64_t group);

}  // namespace moeflux::tiled
