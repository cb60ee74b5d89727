// GPTQ: codes of 4 or 8 bits in words along columns of the matrix, which are the rows of the file:
// word [w, row] holds columns w * 32 / bits and on. Scales [groups, row], zero points packed along
// rows [groups, w]; the first version of the format stores them less one. With a column map, column
// c belongs to group map[c] (g_idx).
// Source: AutoGPTQ's and GPTQModel's published checkpoints.
#include "base/format.h"
#include "quant/format_traits.h"
#include "quant/formats/integer_groups.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux {
namespace gptq {
namespace {

using integer_groups::bytes_of;
using integer_groups::code_in;
using integer_groups::convert_params;
using integer_groups::group_of;
using integer_groups::groups_of;
using integer_groups::has_valid_fields;
using integer_groups::memory_of;
using integer_groups::Params;
using integer_groups::word_at;
using integer_groups::words_for;

using ConstBytes = std::span<const std::byte>;

std::string name_of(const QuantFormat& f) {
  const std::string group = f.group_size == 0 ? "channel" : formatted("{}", f.group_size);
  return formatted("gptq-{}/{}{}", f.bits, group, has_column_map(f) ? " mapped" : "");
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
  const ConstBytes map = bytes_of(weight.parts.column_map);
  for (int64_t c = 0; c < weight.cols; ++c) {
    const int64_t group = group_of(f, weight.cols, map, c);
    const Params params = params_at(weight, bytes_of(weight.parts.scales),
                                    bytes_of(weight.parts.offsets), row, group);
    const uint32_t word = word_at(codes, c * f.bits / 32 * weight.rows + row);
    out[static_cast<size_t>(c)] =
        static_cast<float>(code_in(word, c, f.bits) - params.zero) * params.scale;
  }
}

std::optional<QuantFormat> in_memory(const QuantFormat& f, int64_t, int64_t cols) {
  return memory_of(f, cols, DType::kF32);
}

// A word is one of a row in memory as it is.
void convert(const Weight& stored, const Parts<std::span<std::byte>>& from, int64_t begin,
             int64_t count, const Parts<std::span<std::byte>>& to) {
  const int64_t words = words_for(stored.cols, stored.format.bits);
  for (int64_t w = 0; w < words; ++w) {
    for (int64_t row = 0; row < count; ++row) {
      std::memcpy(to.codes.data() + 4 * (row * words + w),
                  from.codes.data() + 4 * (w * stored.rows + begin + row), 4);
    }
  }
  const QuantFormat memory = *in_memory(stored.format, stored.rows, stored.cols);
  convert_params(stored, from.column_map, begin, count, memory, to,
                 [&](int64_t row, int64_t group) {
                   return params_at(stored, from.scales, from.offsets, row, group);
                 });
}

}  // namespace
}  // namespace gptq

const FormatTraits gptq_format = {.name = "gptq",
                                  .to_string = gptq::name_of,
                                  .is_valid = gptq::fits,
                                  .lay_out = gptq::lay_out_parts,
                                  .decode_row = gptq::decode,
                                  .in_memory = gptq::in_memory,
                                  .convert_rows = gptq::convert};

}  // namespace moeflux
