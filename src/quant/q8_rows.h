// Keys and values in 8 bits: what a row of the cache means. Every device writes the same bytes and
// reads the same numbers; backend/cpu and backend/gpu have kernels that are tested against this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moeflux::q8_rows {

/// A row of `cols` numbers, a multiple of 32, is `cols` signed bytes, then a scale in f16 for each
/// 32 of them. Zeros follow up to a multiple of 16 bytes, so that rows can be read 16 bytes at a
/// time. A number is its code times its scale, which f32 holds exactly. Tensors of such rows are of
/// DType::kI8, with row_bytes() as innermost extent.
constexpr int64_t kBlock = 32;

constexpr int64_t row_bytes(int64_t cols) { return (cols + cols / kBlock * 2 + 15) / 16 * 16; }
/// The inverse: no two multiples of 32 have rows of equal size.
constexpr int64_t cols_of(int64_t row_bytes) { return row_bytes / (kBlock + 2) * kBlock; }

/// A block's scale is its largest size / 127, rounded to f32 as a product with 1 / 127 and then to
/// f16; codes are the numbers over the scale, rounded to nearest even, at most 127. The scale of a
/// block with NaN or infinity, or too large for f16 (from 127 * 65520 on), is NaN, and so are its
/// numbers then.
void encode(std::span<std::byte> row, std::span<const float> numbers);
/// The first `numbers.size()` numbers of a row of `cols`.
void decode(std::span<float> numbers, const std::byte* row, int64_t cols);

}  // namespace moeflux::q8_rows
