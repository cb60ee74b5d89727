// Products of weight rows with int8 activations: cuts them into panels, adds biases, applies gated
// units.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/kernels/int8_table.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "tensor/tensor.h"

namespace moeflux::cpu {

/// Quantised activations; grow-only.
struct Int8Rows {
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<float> sums;
  std::vector<const float*> sources;  // the distinct rows, sorted
  std::vector<Int8Token> entries;
};

/// out[t][r] = w[r] . x[t] + bias[r] for the rows [row_begin, row_end).
struct Int8Matmul {
  MatrixArgs w;
  Tensor bias;  // may be null
  const Int8Token* x;
  float* const* out;
  int64_t tokens;
  int64_t row_begin;
  int64_t row_end;
};
void int8_matmul(const Int8Kernels& int8, const Int8Matmul& args);

/// out[t][r] = glu(gate[r] . x[t] + gate_bias[r], up[r] . x[t] + up_bias[r]).
struct Int8GluMatmul {
  MatrixArgs gate;
  MatrixArgs up;
  Tensor gate_bias;  // may be null
  Tensor up_bias;
  const Int8Token* x;
  float* const* out;
  int64_t tokens;
  int64_t row_begin;
  int64_t row_end;
  GluArgs glu;
};
void int8_glu_matmul(const Int8Kernels& int8, const KernelTable& kernels,
                     const Int8GluMatmul& args);

}  // namespace moeflux::cpu
