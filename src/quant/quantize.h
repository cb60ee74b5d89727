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

extern const FormatTraits mxfp4_format;

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

/// Under which scale and bias a code is the nearest one to its number.
enum class AffineCodes : uint8_t {
  kOfStored,     // scales as readers see them, rounded to format.dtype: a little closer
  kOfUnrounded,  // scales in f32, as mlx.core.quantize does: its bits
};

/// Row-major MLX affine groups: codes U32 [rows, cols * bits / 32], little-endian, scales and
/// offsets of format.dtype [rows, cols / group_size].
/// Scales and biases are affine::choose_group_params() rounded to format.dtype, which are those of
/// mlx.core.quantize bit for bit. Numbers inside a group's grid are off by half a step at most.
/// Where both signs occur, the grid may end before the extreme of smaller magnitude: by up to one
/// step and what the rounding of its two parameters moves it. Fails with kInvalidArgument when
/// `format` is not affine or does not fit the columns, when a number is not finite, or when a scale
/// or bias is not finite in format.dtype (F16 ends at 65504).
Result<EncodedParts> quantize_affine(const MatrixView& matrix, const QuantFormat& format,
                                     AffineCodes codes = AffineCodes::kOfStored);

/// MXFP4 as formats/mxfp4_format.cc reads it. A group's scale is the smallest power of two under
/// which its extreme is at most 6; each code is the nearest one, the one of smaller magnitude on
/// ties. mlx.core.quantize gives the same bits, but for groups below 6 * 2^-127. Fails with
/// kInvalidArgument when columns are no whole groups of 32 or a number is not finite.
Result<EncodedParts> quantize_mxfp4(const MatrixView& matrix);

/// In any format that numbers can be written in: plain, rounded to the nearest, and affine and
/// MXFP4 with the bits of mlx.core.quantize. Fails as the functions above.
Result<EncodedParts> encode_matrix(const MatrixView& matrix, const QuantFormat& format);

}  // namespace moeflux
