// Encodes f32 matrices as MLX affine groups, in the layout of checkpoints: the parts that a linear
// module stores as .weight, .scales and .biases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "quant/format.h"

namespace moeflux {

/// Row-major f32 numbers of a [rows, cols] matrix. A stack of matrices is one matrix of all rows.
struct MatrixView {
  std::span<const float> values;
  int64_t rows = 0;
  int64_t cols = 0;
};

/// The bytes of a matrix's parts.
using EncodedParts = Parts<std::vector<std::byte>>;
Parts<std::span<std::byte>> spans_of(EncodedParts& parts);

/// The format that weights are quantised to where nobody chooses: 4 bits in groups of 64, scales in
/// BF16.
QuantFormat usual_quantisation();

/// Row-major MLX affine groups: codes U32 [rows, cols * bits / 32], little-endian, scales and
/// offsets of format.dtype [rows, cols / group_size].
/// Quantises with the parameters of affine::choose_group_params(), rounded to format.dtype before
/// codes are chosen: each code is the nearest one under the numbers a reader will see. (MLX chooses
/// codes before it rounds; with F32 scales the results are the same bit for bit, with narrower ones
/// scales and biases are.) Numbers inside a group's grid are off by half a step at most. Where both
/// signs occur, the grid may end before the extreme of smaller magnitude: by up to one step and
/// what the rounding of its two parameters moves it. Fails with kInvalidArgument when `format` is
/// not affine or does not fit the columns, when a number is not finite, or when a scale or bias is
/// not finite in format.dtype (F16 ends at 65504).
Result<EncodedParts> quantize_affine(const MatrixView& matrix, const QuantFormat& format);

}  // namespace moeflux
