// Activations as integers in device memory, for products of many tokens, which read them often.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// x as bytes, an octet of columns in 4 words: 256s, ones; and of each block the sum of its
/// integers and its factor. Group y: the row; a thread an octet, cols / 8 rounded up to whole SIMD
/// groups.
MF_KERNEL(unit_split, UnitSplitParams, MF_READ(0, f32, x), MF_WRITE(1, u32, split),
          MF_WRITE(2, f32, sums)) {
  MF_THREAD;
  const u32 o = t.group.x * t.threads + t.index;
  f32 values[8];
  load_octet(values, x + t.group.y * p.x_stride, o * 8u, p.cols, p.wide);
  const UnitFactor factor = unit_factor(lanes_max<8u>(t, largest_bits<8u>(values)));
  const UnitOctet octet = unit_octet(values, factor.into);
  const f32 sum = lanes_sum<8u>(t, octet.sum);
  if (o * 8u >= p.cols) return;
  const W4 words = {{octet.high.v[0], octet.high.v[1], octet.low.v[0], octet.low.v[1]}};
  store4(split + (static_cast<u64>(t.group.y) * (p.cols / 2u) + o * 4u), words);
  if (o % 8u == 0u) {
    MF_GLOBAL(f32) to = sums + (static_cast<u64>(t.group.y) * (p.cols / kUnitBlock) + o / 8u) * 2u;
    to[0] = sum;
    to[1] = factor.out_of;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
