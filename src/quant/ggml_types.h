// The element types of GGML, by the numbers that GGUF files give them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "quant/format.h"

namespace moeflux {

/// One type that GGUF files name. Types without a format are known by name only, so that a message
/// can say which one a file has.
struct GgmlType {
  uint32_t id = 0;
  std::string_view name;  // as llama.cpp spells it: "Q4_K"
  int64_t block_elements =
      0;  // neighbours along a row that are stored together; 0 when not readable
  int64_t block_bytes = 0;
  std::optional<QuantFormat> format;  // of a matrix of this type; none: of no matrix
  bool are_ids = false;               // I32, of tables that name experts

  bool is_readable() const { return format.has_value() || are_ids; }
  /// True of rows that are whole blocks.
  bool fits(int64_t cols) const { return cols % block_elements == 0; }
  /// Bytes of a row of `cols` numbers, a multiple of block_elements. The caller bounds cols.
  int64_t row_bytes(int64_t cols) const { return cols / block_elements * block_bytes; }
};

/// Null when nobody is known to have given that number to a type.
const GgmlType* find_ggml_type(uint32_t id);
/// By name, whatever the case of letters: "q4_K", "Q4_K".
const GgmlType* find_ggml_type(std::string_view name);
/// All of them, by number.
std::span<const GgmlType> ggml_types();

}  // namespace moeflux
