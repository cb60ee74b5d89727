// FormatTraits: a storage format as data. Code that stores, reads, packs or counts weights asks
// these and names no format; a backend adds its own decoder to a format (its decoders/ folder or
// list) and refuses a format that it has none for.
//
// Every file in formats/ that ends in _format.cc defines `const FormatTraits <file>`, and every one
// that ends in _formats.cc defines `std::span<const FormatTraits> <file>()`; the list of them all
// is generated, so that adding a format is adding a file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quant/format.h"
#include "quant/weight.h"

namespace moeflux {

/// How a row is cut where it is blocks, one after another, that hold all parts of some neighbouring
/// numbers.
struct BlockLayout {
  int64_t elements = 0;  // of a block; 0: the format has no blocks
  int64_t bytes = 0;
  /// The definition: number `e` of a block. Any bits are a block, and nothing outside it is read.
  float (*number)(const uint8_t* block, int e) = nullptr;
};

struct FormatTraits {
  std::string_view name;
  /// The name of one concrete format of this kind in messages.
  std::string (*to_string)(const QuantFormat& format);
  bool (*is_valid)(const QuantFormat& format, int64_t cols);
  /// Gives the weight, of which format, rows and cols are set, the shapes and types of its parts.
  void (*lay_out)(Weight& weight);
  /// The definition: row `row` in f32. Host memory only. Null: nobody knows what it means.
  void (*decode_row)(const Weight& weight, int64_t row, std::span<float> out);
  BlockLayout block{};
  /// Formats that only files have: the format of the same numbers, bit for bit but for NaN, in
  /// memory. Nullopt where this matrix has none. Null: the format is one of memory.
  std::optional<QuantFormat> (*in_memory)(const QuantFormat& format, int64_t rows,
                                          int64_t cols) = nullptr;
  /// Rows [begin, begin + count) of a matrix in in_memory()'s format, row-major; `to` has room for
  /// count rows. Any bytes may come: none of them leads outside.
  void (*convert_rows)(const Weight& stored, const Parts<std::span<std::byte>>& from, int64_t begin,
                       int64_t count, const Parts<std::span<std::byte>>& to) = nullptr;
};

std::span<const FormatTraits* const> known_formats();
/// By name; null when there is none.
const FormatTraits* find_format(std::string_view name);

}  // namespace moeflux
