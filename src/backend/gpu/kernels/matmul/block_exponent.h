// Numbers of a block as multiples of one power of two: of the exponent of the largest.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 {
  kExponentMin = 67u,  // 2^-60; what is smaller counts as that
  kNotFinite = 255u,
};

MF_FN u32 size_bits(f32 value) { return as_bits(value) & 0x7fffffffu; }

/// The exponent of a block from the bits of its largest number.
MF_FN u32 block_exponent(u32 bits) {
  const u32 exponent = bits >> 23u;
  return exponent < kExponentMin ? static_cast<u32>(kExponentMin) : exponent;
}
/// 2^14 over the power of two: what is multiplied by this stays below 2^15.
MF_FN f32 into_halves(u32 exponent) { return as_float((268u - exponent) << 23u); }
MF_FN f32 out_of_halves(u32 exponent) {
  return as_float(exponent == kNotFinite ? 0x7fc00000u : (exponent - 14u) << 23u);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
