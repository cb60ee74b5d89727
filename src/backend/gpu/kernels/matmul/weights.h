// Decoding of stored numbers.
#pragma once

#include "backend/gpu/kernels/matmul/coded_formats.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Element i of an array of a plain float format.
MF_FN f32 load_plain(MF_GLOBAL(const u8) data, u64 i, u32 format) {
  if (format == kFormatF32) return MF_CAST(const f32, data)[i];
  const u16 bits = MF_CAST(const u16, data)[i];
  return format == kFormatBf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

/// Code `i` of `bits` bits of a row of words.
MF_FN u32 code_at(MF_GLOBAL(const u32) row, u32 i, u32 bits) {
  const u32 bit = i * bits;
  const u32 shift = bit % 32u;
  u32 window = row[bit / 32u] >> shift;
  if (shift + bits > 32u) window |= row[bit / 32u + 1u] << (32u - shift);
  return window & ((1u << bits) - 1u);
}

/// One number of a matrix of plain numbers or affine groups.
MF_FN f32 grouped_at(MatrixLayout m, MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                     MF_GLOBAL(const u8) biases, u64 row, u32 col) {
  if (m.format >= kFormatF16) return load_plain(data, row * m.cols + col, m.format);
  const u32 words = m.cols / 32u * m.format;
  const u32 code = code_at(MF_CAST(const u32, data) + row * words, col, m.format);
  const u64 group = row * (m.cols >> m.group_shift) + (col >> m.group_shift);
  return load_plain(scales, group, m.scales) * static_cast<f32>(code) +
         load_plain(biases, group, m.scales);
}

/// One number of a matrix, as decode_row() defines it.
MF_FN f32 decode_at(MatrixLayout m, MF_GLOBAL(const u8) data, MF_GLOBAL(const u8) scales,
                    MF_GLOBAL(const u8) biases, u64 row, u32 col) {
  if (m.format >= kFormatCoded) return coded_at(m, CodedParts{data, scales, biases}, row, col);
  return grouped_at(m, data, scales, biases, row, col);
}

/// The same of eight, from a column that is a multiple of 8 on; 0 in place of those from `left` on.
MF_FN void decode_eight(MF_LOCAL(f32) values, MatrixLayout m, MF_GLOBAL(const u8) data,
                        MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases, u64 row, u32 col,
                        u32 left) {
  if (m.format >= kFormatCoded) {
    return coded_eight(values, m, CodedParts{data, scales, biases}, row, col, left);
  }
  for (u32 k = 0u; k < 8u; ++k) {
    values[k] = k < left ? grouped_at(m, data, scales, biases, row, col + k) : 0.0f;
  }
}

MF_FN f32 bias_at(MF_T t, u64 address, u32 row, u32 format) {
  return address == 0u ? 0.0f : load_plain(MF_AT(t, const u8, address), row, format);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
