// Weight: a matrix in some storage format, and its scalar meaning.
#pragma once

#include <span>

#include "quant/format.h"
#include "tensor/tensor.h"

namespace moeflux {

/// A [rows, cols] matrix as stored: y = W x maps cols inputs to rows outputs. Views only; see
/// WeightStore for owners.
struct Weight {
  // plain: [rows, cols] of format.dtype; affine: U32 [rows, cols * bits / 32]; in tiled order: U8
  // [bytes], which hold everything
  Tensor data;
  Tensor scales;  // row-major affine: [rows, cols / group_size] of format.dtype; null otherwise
  Tensor biases;  // like scales
  QuantFormat format;
  int64_t rows = 0;
  int64_t cols = 0;
  /// Activations that meet this matrix keep their f32: a device that rounds them to narrower
  /// numbers elsewhere must not do so here. Set for routers, where a rounding may choose another
  /// expert.
  bool exact_activations = false;

  bool is_null() const { return data.is_null(); }
  uint64_t size_bytes() const { return weight_bytes(format, rows, cols).total(); }
};

/// Decodes row `row` into out[cols], exactly as the format defines it, in f32. Host memory only.
/// This is the definition every backend's decoder is tested against.
void decode_row(const Weight& weight, int64_t row, std::span<float> out);

}  // namespace moeflux
