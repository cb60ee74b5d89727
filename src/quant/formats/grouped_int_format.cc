// Whole numbers in groups of any width and order, w = (code - zero) * scale; a format of memory
// alone. It has codes of 4 or 8 bits row after row, the first in the lowest bits, then a scale and
// a zero point in F32 [rows, groups, 2], then the group of each column [cols]. Groups lie in order
// unless the format has a column map. awq, gptq and packed_int become it where affine groups would
// round or do not fit, or where a map puts columns in groups.
#include "quant/formats/integer_groups.h"

namespace moeflux::integer_groups {
namespace grouped_int {
namespace {

std::string name_of(const QuantFormat& f) {
  return formatted("grouped-int{}/{}{}", f.bits, group_name(f), has_column_map(f) ? " mapped" : "");
}

bool fits(const QuantFormat& format, int64_t cols) {
  return has_valid_fields(format, cols) && format.dtype == DType::kF32 &&
         (format.variant & ~kColumnMap) == 0;
}

void lay_out_parts(Weight& weight) {
  const QuantFormat& f = weight.format;
  weight.parts.codes = unplaced({weight.rows, words_for(weight.cols, f.bits)}, DType::kI32);
  weight.parts.scales = unplaced({weight.rows, groups_of(f, weight.cols), 2}, DType::kF32);
  weight.parts.column_map = unplaced({weight.cols}, DType::kI32);
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& f = weight.format;
  const auto codes = bytes_of(weight.parts.codes);
  const auto scales = bytes_of(weight.parts.scales);
  const auto map = bytes_of(weight.parts.column_map);
  const int64_t first = row * words_for(weight.cols, f.bits);
  const int64_t groups = groups_of(f, weight.cols);
  for (int64_t c = 0; c < weight.cols; ++c) {
    const int64_t at = 2 * (row * groups + group_of(f, weight.cols, map, c));
    const auto code =
        static_cast<float>(code_in(word_at(codes, first + c * f.bits / 32), c, f.bits));
    out[static_cast<size_t>(c)] = (code - load_float(scales.data(), at + 1, DType::kF32)) *
                                  load_float(scales.data(), at, DType::kF32);
  }
}

}  // namespace
}  // namespace grouped_int
}  // namespace moeflux::integer_groups

namespace moeflux {

const FormatTraits grouped_int_format = {.name = "grouped_int",
                                         .to_string = integer_groups::grouped_int::name_of,
                                         .is_valid = integer_groups::grouped_int::fits,
                                         .lay_out = integer_groups::grouped_int::lay_out_parts,
                                         .decode_row = integer_groups::grouped_int::decode};

}  // namespace moeflux
