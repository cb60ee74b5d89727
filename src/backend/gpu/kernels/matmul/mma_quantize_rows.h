// Activations as integers in device memory, for products of many tokens, which read them often.
#pragma once

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_product.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// x as bytes, and of each block the sum of its integers and its factor, or what kGgmlSumWords
/// says. Group y: the row; a thread an octet, cols / 8 rounded up to whole SIMD groups.
MF_KERNEL(mma_quantize_rows, QuantizeRowsParams, MF_READ(0, f32, x), MF_WRITE(1, u32, split),
          MF_WRITE(2, f32, sums)) {
  MF_THREAD;
  const u32 o = t.group.x * t.threads + t.index;
  f32 values[8];
  load_octet(values, x + t.group.y * p.x_stride, o * 8u, p.cols, p.wide);
  const UnitFactor factor = unit_factor(lanes_max<8u>(t, largest_bits<8u>(values)));
  const bool by_halves = (p.order & kRowsByHalves) != 0u;
  const MmaOctet octet = mma_octet(values, factor.into, by_halves);
  const i32 quarter = add_lane(t, octet.sum, 1u);
  const i32 half = add_lane(t, quarter, 2u);
  const i32 sum = add_lane(t, half, 4u);
  if (o * 8u >= p.cols) return;
  // A block has 4 pieces of 16 bytes of 256s, then as many of ones: even columns of octets 0, 2, 4
  // and 6, their odd ones, and the same of octets 1, 3, 5 and 7. By halves the first two are the
  // first four columns of octets 0 to 3 and their last four. By lanes they are even and odd columns
  // of octets 0 and 1, of 2 and 3, and so on.
  const u64 block = static_cast<u64>(t.group.y) * (p.cols / kMmaBlock) + o / 8u;
  const bool by_lanes = (p.order & kRowsByLanes) != 0u;
  u32 within = by_halves ? o % 8u / 4u * 8u + o % 4u : o % 2u * 8u + o % 8u / 2u;
  if (by_lanes) within = by_halves ? o % 4u * 4u + o % 8u / 4u * 2u : o % 8u * 2u;
  const u32 step = by_lanes ? 1u : 4u;
  MF_GLOBAL(u32) own = split + (block * kMmaBlockWords + within);
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    own[i * step] = octet.high.v[i];
    own[kMmaBlockWords / 2u + i * step] = octet.low.v[i];
  }
  if (by_halves) {
    MF_GLOBAL(f32) to = sums + block * kGgmlSumWords;
    if (o % 2u == 0u) to[kGgmlSumQuarters + o % 8u / 2u] = static_cast<f32>(quarter);
    if (o % 4u == 0u) to[o % 8u / 4u] = static_cast<f32>(half);
    if (o % 8u == 0u) to[kGgmlSumFactor] = factor.out_of;
  } else if (o % 8u == 0u) {
    sums[block * 2u] = static_cast<f32>(sum);
    sums[block * 2u + 1u] = factor.out_of;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
