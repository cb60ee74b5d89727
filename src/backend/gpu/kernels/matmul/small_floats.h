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
  MF_GLOBAL(const u8) offsets;  // or the outer scale of formats that have one
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

/// All but NaN are halves that are 256 times too small.
MF_FN f32 e4m3_of(u32 code) {
  const u32 magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return f16_to_float(static_cast<u16>(0x7e00u));
  return f16_to_float(static_cast<u16>((code & 0x80u) << 8 | magnitude << 7)) * 256.0f;
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

/// quant/formats/fp8_format.cc is the definition.
MF_FN f32 fp8_at(MatrixLayout m, CodedParts parts, u64 row, u32 col) {
  const u64 groups = (static_cast<u64>(m.cols - 1u) >> m.group_shift) + 1u;
  const u64 at = (row >> m.row_shift) * groups + (col >> m.group_shift);
  f32 scale;
  if (m.scales == kScalesE8m0) {
    scale = e8m0_of(parts.scales[at]);
  } else if (m.scales == kFormatF32) {
    scale = MF_CAST(const f32, parts.scales)[at];
  } else {
    const u16 bits = MF_CAST(const u16, parts.scales)[at];
    scale = m.scales == kFormatBf16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
  return scale * e4m3_of(parts.codes[row * m.cols + col]);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
