// Decoders of storage formats that have no products of their own, exact: one number at a time, or
// eight, which is several times as fast. A format adds its name to coded_list.h and `<name>_at()`
// to a header that is included here.
#pragma once

#include "backend/gpu/kernels/coded_list.h"
#include "backend/gpu/kernels/matmul/ggml_formats.h"
#include "backend/gpu/kernels/matmul/small_floats.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Their numbers in MatrixLayout::format.
enum : u32 {
  kCodedBegin = kFormatCoded - 1,
#define MF_CODED_NUMBER(name) kCoded_##name,
  MF_CODED_FORMATS(MF_CODED_NUMBER)
#undef MF_CODED_NUMBER
};

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
  if (m.format >= kFormatGgml) return ggml_at(m, parts, row * m.cols + col);
  u32 number = kFormatCoded;
#define MF_CODED_CASE(name) \
  if (m.format == number++) return name##_at(m, parts, row, col);
  MF_CODED_FORMATS(MF_CODED_CASE)
#undef MF_CODED_CASE
  return 0.0f;
}

/// Eight numbers of a row from `col` on, a multiple of 8; 0 in place of those from `left` on. The
/// format is looked at once, and what the numbers of a block share is read once.
MF_FN_APART void coded_eight(MF_LOCAL(f32) values, MatrixLayout m, CodedParts parts, u64 row,
                             u32 col, u32 left) {
  if (m.format < kFormatGgml) {
    u32 number = kFormatCoded;
#define MF_CODED_EIGHT(name)                                                                       \
  if (m.format == number++) {                                                                      \
    MF_UNROLL                                                                                      \
    for (u32 k = 0u; k < 8u; ++k) values[k] = k < left ? name##_at(m, parts, row, col + k) : 0.0f; \
  }
    MF_CODED_FORMATS(MF_CODED_EIGHT)
#undef MF_CODED_EIGHT
    return;
  }
  // Columns of GGML's types are whole blocks.
  const u64 octet = (row * m.cols + col) / 8u;
  u32 number = kFormatGgml;
#define MF_GGML_EIGHT(name, elements, bytes)                                   \
  if (m.format == number++) {                                                  \
    MF_GLOBAL(const u8) block = parts.codes + octet / (elements / 8u) * bytes; \
    const u32 first = static_cast<u32>(octet % (elements / 8u)) * 8u;          \
    MF_UNROLL                                                                  \
    for (u32 k = 0u; k < 8u; ++k) values[k] = name##_number(block, first + k); \
  } else
  MF_GGML_FORMATS(MF_GGML_EIGHT) {}
#undef MF_GGML_EIGHT
  if (m.scales != kFormatF32) return;
  const f32 outer = MF_CAST(const f32, parts.offsets)[0];
  MF_UNROLL
  for (u32 k = 0u; k < 8u; ++k) values[k] = values[k] * outer;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
