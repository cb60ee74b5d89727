// FP8 for matrix units: e4m3 as integers of three signed bytes, which meet both bytes of
// activations. backend/unit_text.h has the order of sums.
#pragma once

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/small_floats.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The bytes of four codes' integers, which are 512 times the numbers: ones, 256s and 65536s.
struct Fp8Digits {
  u32 v[3];
};
/// Sets the upper bit of some byte of `nan` where a code is NaN.
MF_FN Fp8Digits fp8_digits(u32 codes, MF_LOCAL(u32) nan) {
  f32 values[4];
  e4m3_quad(values, codes);
  u32 bits[4];
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    // 1.5 * 2^23 + n is an f32 whose bits end in n; half of the lower bytes more makes those above
    // round to nearest.
    bits[k] = as_bits(mf_fma(values[k], 512.0f, 12615808.0f));
  }
  const u32 first = even_bytes(bits[0], bits[1]);
  const u32 last = even_bytes(bits[2], bits[3]);
  const u32 upper = odd_bytes(first, last);  // 64 more than the 65536s, and bits of an exponent
  *nan |= upper;
  Fp8Digits digits;
  digits.v[0] = even_bytes(first, last) ^ 0x80808080u;
  digits.v[1] = even_bytes(odd_bytes(bits[0], bits[1]), odd_bytes(bits[2], bits[3])) ^ 0x80808080u;
  digits.v[2] = (upper + 0x40404040u) ^ 0x80808080u;
  return digits;
}
/// A row's scale, NaN where a code of its block is NaN.
MF_FN f32 fp8_poisoned(f32 scale, u32 nan) {
  return (nan & 0x80808080u) != 0u ? as_float(0x7fc00000u) : scale;
}

/// Adds the products of two of the three bytes, both times both bytes of activations: the upper
/// pair of them, 65536s and above, then the lower one.
MF_FN f32 add_fp8_pair(f32 total, i32 high, i32 low, f32 scale) {
  return mf_fma(scale, static_cast<f32>(high * 256 + low), total);
}
MF_FN f32 fp8_upper_scale(f32 scale) { return scale * 128.0f; }
MF_FN f32 fp8_lower_scale(f32 scale) { return scale * 0.001953125f; }

/// Where the scales of a row lie.
struct Fp8Scales {
  MF_GLOBAL(const u8) scales;
  u32 first;
  u32 group_shift;
  u32 format;

  /// The scale of the half of a block that begins at this column.
  MF_FN_MEMBER f32 at(u32 col) const {
    return fp8_scale(format, scales, first + (col >> group_shift));
  }
};
MF_FN Fp8Scales fp8_row_scales(MmaMatrix m, u32 cols, MF_GLOBAL(const u8) scales, u32 row) {
  const Fp8Scales own = {scales, (row >> m.row_shift) * fp8_groups(cols, m.group_shift),
                         m.group_shift, m.scales};
  return own;
}
/// Scales of 32 columns, two in a block.
MF_FN bool fp8_has_halves(MmaMatrix m) { return m.group_shift < 6u; }

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
