// Decoders of storage formats that have no products of their own: one number at a time, exact and
// slow. A format adds its name to coded_list.h and `<name>_at()` here, which
// gives number `at` of the matrix in row-major order; rows are whole groups.
#pragma once

#include "backend/gpu/kernels/coded_list.h"
#include "backend/gpu/kernels/matmul/ggml_formats.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where the parts of a matrix lie.
struct CodedParts {
  MF_GLOBAL(const u8) codes;
  MF_GLOBAL(const u8) scales;
  MF_GLOBAL(const u8) offsets;
};

/// quant/formats/mxfp4_format.cc is the definition. Scales are the exponents of bf16 numbers, of
/// which 0 is the one below the normal ones.
MF_FN f32 mxfp4_at(MatrixLayout, CodedParts parts, u64 at) {
  const u32 shift = static_cast<u32>(at % 2u) * 4u;
  const u32 code = (static_cast<u32>(parts.codes[at / 2u]) >> shift) & 15u;
  const u32 scale = parts.scales[at / 32u];
  const u32 exponent = (code >> 1) & 3u;
  const f32 half = static_cast<f32>(code & 1u) * 0.5f;
  const f32 magnitude =
      exponent == 0u ? half : (1.0f + half) * static_cast<f32>(1u << (exponent - 1u));
  const f32 factor = bf16_to_float(static_cast<u16>(scale == 0u     ? 0x40u
                                                    : scale == 255u ? 0x7fc0u
                                                                    : scale << 7));
  return factor * ((code & 8u) != 0u ? -magnitude : magnitude);
}

/// One number of a matrix in one of GGML's types; an outer scale lies where offsets would.
MF_FN_APART f32 ggml_at(MatrixLayout m, CodedParts parts, u64 at) {
  f32 value = 0.0f;
  u32 number = kFormatGgml;
#define MF_GGML_CASE(name, elements, bytes)                                                      \
  if (m.format == number++) {                                                                    \
    value = name##_number(parts.codes + at / elements * bytes, static_cast<u32>(at % elements)); \
  }
  MF_GGML_FORMATS(MF_GGML_CASE)
#undef MF_GGML_CASE
  return m.scales == kFormatF32 ? value * MF_CAST(const f32, parts.offsets)[0] : value;
}

/// One number of a matrix in one of these formats.
MF_FN f32 coded_at(MatrixLayout m, CodedParts parts, u64 row, u32 col) {
  const u64 at = row * m.cols + col;
  if (m.format >= kFormatGgml) return ggml_at(m, parts, at);
  u32 number = kFormatCoded;
#define MF_CODED_CASE(name) \
  if (m.format == number++) return name##_at(m, parts, at);
  MF_CODED_FORMATS(MF_CODED_CASE)
#undef MF_CODED_CASE
  return 0.0f;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
