// A tensor seen several times over.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/tensor.h"

namespace moeflux::blocks {

/// Each row of [rows, cols] `count` times: [rows, count, cols].
inline Tensor repeated_rows(Tensor matrix, int64_t count) {
  MF_CHECK(matrix.shape.rank() == 2);
  matrix.strides = {matrix.strides[0], 0, matrix.strides[1], 0};
  matrix.shape = {matrix.shape[0], count, matrix.shape[1]};
  return matrix;
}

}  // namespace moeflux::blocks
