// Blocks of columns rounded to a format of few bits.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/elements.h"
#include "backend/gpu/kernels/rows/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

#include "backend/round_text.h"

/// One thread an element: a block is half a SIMD group, or a whole one.
MF_KERNEL(round_blocks, RoundBlocksParams, MF_WRITE(0, f32, x)) {
  MF_THREAD;
  const Element e = element_of(t, p.x.rows, p.x.cols);
  const u64 at = e.inside ? row_at(p.x.out, e.row) + e.col : 0u;
  const f32 own = e.inside ? x[at] : 0.0f;
  f32 most = own < 0.0f ? -own : own;
  for (u32 mask = p.block / 2u; mask > 0u; mask /= 2u) {
    most = mf_max(most, simd_shuffle_xor(t, most, mask));
  }
  if (e.inside) x[at] = rounded_number(own, rounded_scale(most, p.format), p.format);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
