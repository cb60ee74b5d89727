// Decoders of storage formats that have no kernels of their own on this processor: rows become f32
// in a thread's workspace, and meet the kernels of plain matrices there. Slower than kernels by the
// decoding, and by what a cache lets through; the numbers are the format's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/weight.h"

namespace moeflux::cpu {

/// Every file in decoders/ defines `const RowDecoder <file>_decoder`, or, where its name ends in
/// _decoders, `std::span<const RowDecoder> <file>()`; the list of them is generated, so that adding
/// a decoder is adding a file.
struct RowDecoder {
  std::string_view format;  // FormatTraits::name
  /// Rows [begin, begin + count) as f32 [count, cols].
  void (*decode)(const Weight& weight, int64_t begin, int64_t count, float* out);
};

std::span<const RowDecoder* const> row_decoders();
/// The one for a format; null when there is none.
const RowDecoder* find_decoder(const QuantFormat& format);

/// Rows decoded at a time: a matrix's share of a core's cache, at 8 KiB a row.
constexpr int64_t kDecodedRows = 16;
/// Bytes of workspace for them.
inline size_t decoded_bytes(const Weight& weight) {
  return static_cast<size_t>(kDecodedRows * weight.cols) * sizeof(float);
}

}  // namespace moeflux::cpu
