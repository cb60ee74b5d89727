// Decoders of storage formats that have no products of their own: one number at a time, exact and
// slow. A format adds its name to coded_list.h and `<name>_at()` here, which
// gives number `at` of the matrix in row-major order; rows are whole groups.
#pragma once

#include "backend/gpu/kernels/coded_list.h"
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

/// One number of a matrix in one of these formats.
MF_FN f32 coded_at(MatrixLayout m, CodedParts parts, u64 row, u32 col) {
  const u64 at = row * m.cols + col;
  u32 number = kFormatCoded;
#define MF_CODED_CASE(name) \
  if (m.format == number++) return name##_at(m, parts, at);
  MF_CODED_FORMATS(MF_CODED_CASE)
#undef MF_CODED_CASE
  // Plans name no other format; without any in the list this is what uses the arguments.
  return m.format == number ? static_cast<f32>(parts.codes[at]) : 0.0f;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
