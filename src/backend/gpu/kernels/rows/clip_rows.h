// Rows that are kept from being longer than a bound.
#pragma once

#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A row a SIMD group.
MF_KERNEL(clip_rows, ClipRowsParams, MF_WRITE(0, f32, x)) {
  MF_THREAD;
  const u32 row = t.group.x * t.simds + t.simd;
  if (row >= p.rows) return;
  MF_GLOBAL(f32) own = x + static_cast<u64>(row) * p.cols;
  f32 squares = 0.0f;
  for (u32 c = t.lane; c < p.cols; c += 32u) squares = mf_fma(own[c], own[c], squares);
  const f32 length = mf_sqrt(simd_sum(t, squares)) + p.added;
  if (length <= p.longest) return;
  const f32 factor = p.longest / length;
  for (u32 c = t.lane; c < p.cols; c += 32u) own[c] = own[c] * factor;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
