// Numbers of formats of quantised safetensors checkpoints, one at a time.
// quant/small_floats.h says what the codes mean.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where the parts of a matrix lie.
struct CodedParts {
  MF_GLOBAL(const u8) codes;
  MF_GLOBAL(const u8) scales;
  MF_GLOBAL(const u8) offsets;  // or the outer scale or the column map of formats that have one
};

MF_FN f32 e2m1_of(u32 code) {
  const u32 exponent = (code >> 1) & 3u;
  const f32 half = static_cast<f32>(code & 1u) * 0.5f;
  const f32 magnitude =
      exponent == 0u ? half : (1.0f + half) * static_cast<f32>(1u << (exponent - 1u));
  return (code & 8u) != 0u ? -magnitude : magnitude;
}

/// The exponents of bf16 numbers, of which 0 is the one below the normal ones.
MF_FN f32 e8m0_of(u32 scale) {
  return bf16_to_float(static_cast<u16>(scale == 0u     ? 0x40u
                                        : scale == 255u ? 0x7fc0u
                                                        : scale << 7));
}

/// Code `at` of two a byte, the even one in the low half.
MF_FN u32 nibble_at(MF_GLOBAL(const u8) codes, u64 at) {
  return (static_cast<u32>(codes[at / 2u]) >> (static_cast<u32>(at % 2u) * 4u)) & 15u;
}

/// quant/formats/mxfp4_format.cc is the definition.
MF_FN f32 mxfp4_at(MatrixLayout m, CodedParts parts, u64 row, u32 col) {
  const u64 at = row * m.cols + col;
  return e8m0_of(parts.scales[at / 32u]) * e2m1_of(nibble_at(parts.codes, at));
}

/// quant/formats/nvfp4_format.cc is the definition.
MF_FN f32 nvfp4_at(MatrixLayout m, CodedParts parts, u64 row, u32 col) {
  const u64 at = row * m.cols + col;
  const f32 value = e2m1_of(nibble_at(parts.codes, at)) * e4m3_of(parts.scales[at / 16u]);
  if (m.variant == 0u) return value;
  const f32 outer = MF_CAST(const f32, parts.offsets)[0];
  return value * (m.variant == 2u ? 1.0f / outer : outer);
}

/// quant/formats/grouped_int_format.cc is the definition. No map leads outside of a row's groups.
MF_FN f32 grouped_int_at(MatrixLayout m, CodedParts parts, u64 row, u32 col) {
  const u64 at = row * m.cols + col;
  const u32 code =
      m.code_bits == 4u ? nibble_at(parts.codes, at) : static_cast<u32>(parts.codes[at]);
  const u32 mapped = MF_CAST(const u32, parts.offsets)[col];
  const u64 group = row * m.groups + (mapped < m.groups ? mapped : m.groups - 1u);
  const f32 scale = MF_CAST(const f32, parts.scales)[group * 2u];
  return (static_cast<f32>(code) - MF_CAST(const f32, parts.scales)[group * 2u + 1u]) * scale;
}

/// Scale `at` of a matrix of FP8 whose scales have this format.
MF_FN f32 fp8_scale(u32 format, MF_GLOBAL(const u8) scales, u64 at) {
  if (format == kScalesE8m0) return e8m0_of(scales[at]);
  if (format == kFormatF32) return MF_CAST(const f32, scales)[at];
  const u16 bits = MF_CAST(const u16, scales)[at];
  return format == kFormatBf16 ? bf16_to_float(bits) : f16_to_float(bits);
}
/// Scales of a row of so many columns.
MF_FN u32 fp8_groups(u32 cols, u32 group_shift) { return ((cols - 1u) >> group_shift) + 1u; }

/// The scale of a column of FP8, and of the seven behind it where it is a multiple of 8.
MF_FN f32 fp8_scale_at(MatrixLayout m, MF_GLOBAL(const u8) scales, u64 row, u32 col) {
  const u64 groups = fp8_groups(m.cols, m.group_shift);
  return fp8_scale(m.scales, scales, (row >> m.row_shift) * groups + (col >> m.group_shift));
}

/// quant/formats/fp8_format.cc is the definition.
MF_FN f32 fp8_at(MatrixLayout m, CodedParts parts, u64 row, u32 col) {
  return fp8_scale_at(m, parts.scales, row, col) * e4m3_of(parts.codes[row * m.cols + col]);
}

/// Four codes in order, as fp8_at() has them.
MF_FN void fp8_quad(MF_LOCAL(f32) values, u32 codes, f32 scale) {
  e4m3_quad(values, codes);
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) values[k] = scale * values[k];
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
