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
  const u64 block = static_cast<u64>(t.group.y) * (p.cols / kMmaBlock) + o / 8u;
  const QuantizedPlace place = quantized_place(p.order, o % 8u);
  MF_GLOBAL(u32) own = split + (block * kMmaBlockWords + place.within);
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    own[i * place.step] = octet.high.v[i];
    own[kMmaBlockWords / 2u + i * place.step] = octet.low.v[i];
  }
  store_quantized_sums(sums, block, by_halves, o % 8u, 8u, quarter, half, sum, factor.out_of);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
