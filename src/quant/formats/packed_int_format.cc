// The format that compressed-tensors calls pack-quantized: rows of codes of 4 or 8 bits as one
// stream in words, the first in the lowest bits; a scale for each group of columns. Codes stand for
// what they are less a zero point: half of their range, or one for each group, which are packed
// along rows. With a column map, column c belongs to group map[c]. int-quantized has signed bytes
// instead, codes and zero points alike: the same codes less 128. Source: the library of that name,
// and the checkpoints that it wrote.
#include "quant/formats/integer_groups.h"

namespace moeflux::integer_groups {
namespace packed_int {
namespace {

std::string name_of(const QuantFormat& f) {
  return formatted("int{}/{}{}{}{}", f.bits, group_name(f), has_zeros(f) ? " zeros" : "",
                   has_column_map(f) ? " mapped" : "", has_signed_bytes(f) ? " bytes" : "");
}

bool fits(const QuantFormat& format, int64_t cols) {
  return has_valid_fields(format, cols) && format.variant < 8 &&
         (format.bits == 8 || !has_signed_bytes(format)) &&
         (format.group_size == 0 || cols % format.group_size == 0);
}

void lay_out_parts(Weight& weight) {
  const QuantFormat& f = weight.format;
  const int64_t groups = groups_of(f, weight.cols);
  const bool are_bytes = has_signed_bytes(f);
  weight.parts.codes = are_bytes
                           ? unplaced({weight.rows, weight.cols}, DType::kI8)
                           : unplaced({weight.rows, words_for(weight.cols, f.bits)}, DType::kI32);
  weight.parts.scales = unplaced({weight.rows, groups}, f.dtype);
  if (has_zeros(f) && are_bytes) {
    weight.parts.offsets = unplaced({weight.rows, groups}, DType::kI8);
  } else if (has_zeros(f)) {
    weight.parts.offsets = unplaced({words_for(weight.rows, f.bits), groups}, DType::kI32);
  }
  if (has_column_map(f)) weight.parts.column_map = unplaced({weight.cols}, DType::kI32);
}

/// A signed byte as the code that stands for the same number.
int code_of(std::byte signed_byte) { return static_cast<int>(signed_byte ^ std::byte{128}); }

Params params_at(const Weight& weight, ConstBytes scales, ConstBytes zeros, int64_t row,
                 int64_t group) {
  const QuantFormat& f = weight.format;
  const int64_t groups = groups_of(f, weight.cols);
  Params params{load_float(scales.data(), row * groups + group, f.dtype), 1 << (f.bits - 1)};
  if (!zeros.empty() && has_signed_bytes(f)) {
    params.zero = code_of(zeros[static_cast<size_t>(row * groups + group)]);
  } else if (!zeros.empty()) {
    params.zero = code_in(word_at(zeros, row / (32 / f.bits) * groups + group), row, f.bits);
  }
  return params;
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& f = weight.format;
  const ConstBytes codes = bytes_of(weight.parts.codes);
  const int64_t first = row * words_for(weight.cols, f.bits);
  decode_row(weight, row, out, params_at, [&](int64_t c) {
    if (has_signed_bytes(f)) return code_of(codes[static_cast<size_t>(row * weight.cols + c)]);
    return code_in(word_at(codes, first + c * f.bits / 32), c, f.bits);
  });
}

/// Half of a code's range times a scale is a number of the scale's own type, but where eight bits
/// reach beyond F16.
std::optional<QuantFormat> in_memory(const QuantFormat& f, int64_t, int64_t cols) {
  const bool is_own = !has_zeros(f) && !(f.bits == 8 && f.dtype == DType::kF16);
  return memory_of(f, cols, is_own ? f.dtype : DType::kF32);
}

void convert(const Weight& stored, const Parts<Bytes>& from, int64_t begin, int64_t count,
             const Parts<Bytes>& to) {
  const auto row_bytes = static_cast<size_t>(stored.cols * stored.format.bits / 8);
  const auto codes = from.codes.subspan(static_cast<size_t>(begin) * row_bytes,
                                        static_cast<size_t>(count) * row_bytes);
  const auto flipped = has_signed_bytes(stored.format) ? std::byte{128} : std::byte{0};
  std::transform(codes.begin(), codes.end(), to.codes.begin(),
                 [&](std::byte code) { return code ^ flipped; });
  convert_params(stored, from, begin, count, to,
                 *in_memory(stored.format, stored.rows, stored.cols), params_at);
}

}  // namespace
}  // namespace packed_int
}  // namespace moeflux::integer_groups

namespace moeflux {

const FormatTraits packed_int_format = {.name = "packed_int",
                                        .to_string = integer_groups::packed_int::name_of,
                                        .is_valid = integer_groups::packed_int::fits,
                                        .lay_out = integer_groups::packed_int::lay_out_parts,
                                        .decode_row = integer_groups::packed_int::decode,
                                        .in_memory = integer_groups::packed_int::in_memory,
                                        .convert_rows = integer_groups::packed_int::convert};

}  // namespace moeflux
