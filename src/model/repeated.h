// A tensor seen several times over.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/tensor.h"

namespace moeflux {

/// Each row of [rows, cols] `count` times: [rows, count, cols].
inline Tensor repeated_rows(Tensor matrix, int64_t count) {
  MF_CHECK(matrix.shape.rank() == 2);
  matrix.strides = {matrix.strides[0], 0, matrix.strides[1], 0};
  matrix.shape = {matrix.shape[0], count, matrix.shape[1]};
  return matrix;
}

/// A vector [cols] as each of `count` rows.
inline Tensor rows_of_vector(Tensor vector, int64_t count) {
  MF_CHECK(vector.shape.rank() == 1);
  vector.strides = {0, 1, 0, 0};
  vector.shape = {count, vector.shape[0]};
  return vector;
}

}  // namespace moeflux
