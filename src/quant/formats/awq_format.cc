// AWQ's "gemm": word [column, w] holds the 4-bit codes of rows 8 * w and on in one column, in the
// order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits up. Scales [groups, row], zero points as codes
// are [groups, w].
// Source: AutoAWQ's published checkpoints.
#include <array>

#include "quant/formats/integer_groups.h"

namespace moeflux::integer_groups {
namespace awq {
namespace {

/// Where the code of row % 8 lies in a word.
constexpr std::array<int, 8> kPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

std::string name_of(const QuantFormat& f) { return formatted("awq/{}", group_name(f)); }

bool fits(const QuantFormat& format, int64_t cols) {
  return has_valid_fields(format, cols) && format.bits == 4 && format.variant == 0;
}

void lay_out_parts(Weight& weight) {
  const int64_t groups = groups_of(weight.format, weight.cols);
  const int64_t words = words_for(weight.rows, 4);
  weight.parts.codes = unplaced({weight.cols, words}, DType::kI32);
  weight.parts.scales = unplaced({groups, weight.rows}, weight.format.dtype);
  weight.parts.offsets = unplaced({groups, words}, DType::kI32);
}

int code_at(const Weight& weight, ConstBytes words, int64_t line, int64_t row) {
  const uint32_t word = word_at(words, line * words_for(weight.rows, 4) + row / 8);
  return code_in(word, kPlaces[static_cast<size_t>(row % 8)], 4);
}

Params params_at(const Weight& weight, ConstBytes scales, ConstBytes zeros, int64_t row,
                 int64_t group) {
  return {load_float(scales.data(), group * weight.rows + row, weight.format.dtype),
          code_at(weight, zeros, group, row)};
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const ConstBytes codes = bytes_of(weight.parts.codes);
  decode_row(weight, row, out, params_at,
             [&](int64_t c) { return code_at(weight, codes, c, row); });
}

std::optional<QuantFormat> in_memory(const QuantFormat& f, int64_t, int64_t cols) {
  return memory_of(f, cols, DType::kF32);
}

/// Eight words of eight rows in as many columns to a word of each of `rows` of them from `first`.
void transpose(const std::array<uint32_t, 8>& columns, int64_t first, int64_t rows, std::byte* to,
               int64_t row_bytes) {
  for (int64_t row = 0; row < rows; ++row) {
    const int shift = 4 * kPlaces[static_cast<size_t>((first + row) % 8)];
    uint32_t word = 0;
    for (size_t j = 0; j < 8; ++j) word |= (columns[j] >> shift & 15u) << (4 * j);
    std::memcpy(to + row * row_bytes, &word, 4);
  }
}

void convert(const Weight& stored, const Parts<Bytes>& from, int64_t begin, int64_t count,
             const Parts<Bytes>& to) {
  const int64_t words = words_for(stored.rows, 4);
  const int64_t row_bytes = stored.cols / 2;
  for (int64_t c = 0; c < stored.cols; c += 8) {
    for (int64_t row = 0; row < count;) {
      const int64_t at = begin + row;
      const int64_t rows = std::min(count - row, 8 - at % 8);
      std::array<uint32_t, 8> columns;
      for (int64_t j = 0; j < 8; ++j) {
        columns[static_cast<size_t>(j)] = word_at(from.codes, (c + j) * words + at / 8);
      }
      transpose(columns, at, rows, to.codes.data() + row * row_bytes + c / 2, row_bytes);
      row += rows;
    }
  }
  convert_params(stored, from, begin, count, to,
                 *in_memory(stored.format, stored.rows, stored.cols), params_at);
}

}  // namespace
}  // namespace awq
}  // namespace moeflux::integer_groups

namespace moeflux {

const FormatTraits awq_format = {.name = "awq",
                                 .to_string = integer_groups::awq::name_of,
                                 .is_valid = integer_groups::awq::fits,
                                 .lay_out = integer_groups::awq::lay_out_parts,
                                 .decode_row = integer_groups::awq::decode,
                                 .in_memory = integer_groups::awq::in_memory,
                                 .convert_rows = integer_groups::awq::convert};

}  // namespace moeflux
