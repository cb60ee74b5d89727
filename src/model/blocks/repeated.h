// A tensor seen several times over.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/tensor.h"

namespace moeflux::blocks {

/// The matrix [rows, cols] for each of `count`: [count, rows, cols].
inline Tensor repeated(Tensor matrix, int64_t count) {
  MF_CHECK(matrix.shape.rank() == 2);
  matrix.strides = {0, matrix.strides[0], matrix.strides[1], 0};
  matrix.shape = {count, matrix.shape[0], matrix.shape[1]};
  return matrix;
}

/// Each row of [rows, cols] `count` times: [rows, count, cols].
inline Tensor repeated_rows(Tensor matrix, int64_t count) {
  MF_CHECK(matrix.shape.rank() == 2);
  matrix.strides = {matrix.strides[0], 0, matrix.strides[1], 0};
  matrix.shape = {matrix.shape[0], count, matrix.shape[1]};
  return matrix;
}

}  // namespace moeflux::blocks
