// The formats of quantised safetensors checkpoints, for those who spell them: each is defined in
// <name>_format.cc.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace moeflux {

extern const FormatTraits fp8_format;
extern const FormatTraits mxfp4_format;
extern const FormatTraits nvfp4_format;
extern const FormatTraits packed_int_format;
extern const FormatTraits gptq_format;
extern const FormatTraits awq_format;
/// The three above in memory, where they have no affine form.
extern const FormatTraits grouped_int_format;

/// One scale for group_rows x group_size numbers; 0 stands for all rows, all columns.
inline QuantFormat fp8_of(DType scales, int group_rows, int group_size) {
  QuantFormat format = QuantFormat::of(fp8_format);
  format.dtype = scales;
  format.group_rows = group_rows;
  format.group_size = group_size;
  return format;
}

/// QuantFormat::variant of NVFP4: what its one outer scale does.
enum class OuterScale : uint8_t { kNone, kFactor, kDivisor };
inline QuantFormat nvfp4_of(OuterScale outer) {
  QuantFormat format = QuantFormat::of(nvfp4_format);
  format.variant = static_cast<uint8_t>(outer);
  return format;
}

/// Formats of whole numbers: columns that share a scale, 0 for all; the type of scales.
inline QuantFormat integers_of(const FormatTraits& kind, int bits, int group_size, DType scales) {
  QuantFormat format = QuantFormat::of(kind);
  format.bits = bits;
  format.group_size = group_size;
  format.dtype = scales;
  return format;
}
/// Bits of QuantFormat::variant of packed_int and gptq: columns are in groups by a map, as they may
/// be of grouped_int; packed_int has zero points, or codes of a signed byte each; gptq's zero
/// points are stored less one.
constexpr uint8_t kColumnMap = 1;
constexpr uint8_t kZeroPoints = 2;
constexpr uint8_t kSignedBytes = 4;
constexpr uint8_t kZerosLessOne = 2;
inline bool has_column_map(const QuantFormat& f) { return (f.variant & kColumnMap) != 0; }
inline bool has_zeros(const QuantFormat& f) { return (f.variant & kZeroPoints) != 0; }
inline bool has_signed_bytes(const QuantFormat& f) { return (f.variant & kSignedBytes) != 0; }
inline bool adds_one_to_zeros(const QuantFormat& f) { return (f.variant & kZerosLessOne) != 0; }

}  // namespace moeflux
