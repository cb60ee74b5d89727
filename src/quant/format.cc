#include "quant/format.h"

#include "quant/format_traits.h"

namespace moeflux {

std::string QuantFormat::to_string() const { return kind->to_string(*this); }

Parts<uint64_t> part_bytes(const QuantFormat& format, int64_t rows, int64_t cols) {
  const Weight weight = lay_out(format, rows, cols);
  Parts<uint64_t> bytes;
  for (const PartRole role : kPartRoles) {
    if (weight.has(role)) bytes[role] = weight.parts[role].size_bytes();
  }
  return bytes;
}

uint64_t weight_bytes(const QuantFormat& format, int64_t rows, int64_t cols) {
  return lay_out(format, rows, cols).size_bytes();
}

bool is_valid(const QuantFormat& format, int64_t cols) {
  return format.kind->is_valid(format, cols);
}

const FormatTraits* find_format(std::string_view name) {
  for (const FormatTraits* format : known_formats()) {
    if (format->name == name) return format;
  }
  return nullptr;
}

}  // namespace moeflux
