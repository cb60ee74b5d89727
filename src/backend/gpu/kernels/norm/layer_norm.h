// Norms that take the mean away first. A SIMD group has a row, in the order of sums.h.
#pragma once

#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/elements.h"

namespace moeflux {
namespace gpu {
namespace kernels {

MF_KERNEL(layer_norm_rows, RowsParams, MF_READ(0, f32, a), MF_CONST(1, f32, weight),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const u32 row = t.group.x * t.simds + t.simd;
  if (row >= p.rows) return;
  MF_GLOBAL(const f32) from = a + row_at(p.a, row);
  MF_GLOBAL(f32) to = out + row_at(p.out, row);
  f32 sum = 0.0f;
  for (u32 c = t.lane * 4u; c < p.cols; c += 128u) {
    const F4 four = load_columns(from, c, p.cols, p.wide);
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) sum = sum + four.v[k];
  }
  const f32 mean = simd_sum(t, sum) / static_cast<f32>(p.cols);
  f32 squares = 0.0f;
  for (u32 c = t.lane * 4u; c < p.cols; c += 128u) {
    const F4 four = load_columns(from, c, p.cols, p.wide);
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) {
      const f32 apart = four.v[k] - mean;
      if (c + k < p.cols) squares = mf_fma(apart, apart, squares);
    }
  }
  const f32 factor = norm_factor(simd_sum(t, squares), p.cols, p.factor);
  for (u32 c = t.lane * 4u; c < p.cols; c += 128u) {
    F4 four = load_columns(from, c, p.cols, p.wide);
    const F4 weights = load_columns(weight, c, p.cols, p.wide);
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) four.v[k] = (four.v[k] - mean) * factor * weights.v[k];
    store_columns(to, c, p.cols, p.wide, four);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
