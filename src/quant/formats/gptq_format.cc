// GPTQ: codes of 4 or 8 bits in words along columns of the matrix, which are the rows of the file:
// word [w, row] holds columns w * 32 / bits and on. Scales [groups, row], zero points packed along
// rows [groups, w]; the first version of the format stores them less one. With a column map, column
// c belongs to group map[c] (g_idx).
// Source: AutoGPTQ's and GPTQModel's published checkpoints.
#include "quant/formats/integer_groups.h"

namespace moeflux::integer_groups {
namespace gptq {
namespace {

std::string name_of(const QuantFormat& f) {
  return formatted("gptq-{}/{}{}", f.bits, group_name(f), has_column_map(f) ? " mapped" : "");
}

bool fits(const QuantFormat& format, int64_t cols) {
  return has_valid_fields(format, cols) && format.variant < 4;
}

void lay_out_parts(Weight& weight) {
  const QuantFormat& f = weight.format;
  const int64_t groups = groups_of(f, weight.cols);
  weight.parts.codes = unplaced({words_for(weight.cols, f.bits), weight.rows}, DType::kI32);
  weight.parts.scales = unplaced({groups, weight.rows}, f.dtype);
  weight.parts.offsets = unplaced({groups, words_for(weight.rows, f.bits)}, DType::kI32);
  if (has_column_map(f)) weight.parts.column_map = unplaced({weight.cols}, DType::kI32);
}

Params params_at(const Weight& weight, ConstBytes scales, ConstBytes zeros, int64_t row,
                 int64_t group) {
  const QuantFormat& f = weight.format;
  const int64_t words = words_for(weight.rows, f.bits);
  const uint32_t word = word_at(zeros, group * words + row / (32 / f.bits));
  return {load_float(scales.data(), group * weight.rows + row, f.dtype),
          code_in(word, row, f.bits) + (adds_one_to_zeros(f) ? 1 : 0)};
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& f = weight.format;
  const ConstBytes codes = bytes_of(weight.parts.codes);
  decode_row(weight, row, out, params_at, [&](int64_t c) {
    return code_in(word_at(codes, c * f.bits / 32 * weight.rows + row), c, f.bits);
  });
}

std::optional<QuantFormat> in_memory(const QuantFormat& f, int64_t, int64_t cols) {
  return memory_of(f, cols, DType::kF32);
}

// A word is one of a row in memory as it is.
void convert(const Weight& stored, const Parts<Bytes>& from, int64_t begin, int64_t count,
             const Parts<Bytes>& to) {
  const int64_t words = words_for(stored.cols, stored.format.bits);
  for (int64_t w = 0; w < words; ++w) {
    for (int64_t row = 0; row < count; ++row) {
      std::memcpy(to.codes.data() + 4 * (row * words + w),
                  from.codes.data() + 4 * (w * stored.rows + begin + row), 4);
    }
  }
  convert_params(stored, from, begin, count, to,
                 *in_memory(stored.format, stored.rows, stored.cols), params_at);
}

}  // namespace
}  // namespace gptq
}  // namespace moeflux::integer_groups

namespace moeflux {

const FormatTraits gptq_format = {.name = "gptq",
                                  .to_string = integer_groups::gptq::name_of,
                                  .is_valid = integer_groups::gptq::fits,
                                  .lay_out = integer_groups::gptq::lay_out_parts,
                                  .decode_row = integer_groups::gptq::decode,
                                  .in_memory = integer_groups::gptq::in_memory,
                                  .convert_rows = integer_groups::gptq::convert};

}  // namespace moeflux
