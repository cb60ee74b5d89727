// MLX's affine groups, row-major and in tiles.
#include <type_traits>

#include "base/format.h"
#include "quant/format_traits.h"
#include "quant/formats/affine.h"
#include "quant/formats/tiled.h"

namespace moeflux {
namespace affine {
namespace {

std::string name_of(const QuantFormat& f) {
  return formatted("affine-{}/{}{}", f.bits, f.group_size,
                   f.order == WeightOrder::kTiled ? " tiled" : "");
}

bool fits(const QuantFormat& format, int64_t cols) {
  return is_plain_float(format.dtype) && affine::is_valid_bits(format.bits) &&
         affine::is_valid_group(format.group_size) && cols % format.group_size == 0;
}

void lay_out_parts(Weight& weight) {
  const QuantFormat& format = weight.format;
  const Shape groups{weight.rows, weight.cols / format.group_size};
  const Tensor words = unplaced({weight.rows, weight.cols * format.bits / 32}, DType::kU32);
  const Tensor params = unplaced(groups, format.dtype);
  if (format.order == WeightOrder::kTiled) {
    const size_t bytes = words.size_bytes() + 2 * params.size_bytes();
    weight.parts.codes = unplaced({static_cast<int64_t>(bytes)}, DType::kU8);
    return;
  }
  weight.parts.codes = words;
  weight.parts.scales = weight.parts.offsets = params;
}

void decode_tiled_row(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& format = weight.format;
  const std::byte* tiles = host_ptr<std::byte>(weight.parts.codes);
  for (int64_t group = 0; group < weight.cols / format.group_size; ++group) {
    const auto [scale, bias] = tiled::params_at(tiles, format, weight.cols, row, group);
    for (int64_t i = 0; i < format.group_size; ++i) {
      const int64_t col = group * format.group_size + i;
      const uint32_t code = tiled::code_at(tiles, format, weight.cols, row, col);
      out[static_cast<size_t>(col)] = scale * static_cast<float>(code) + bias;
    }
  }
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const QuantFormat& format = weight.format;
  if (format.order == WeightOrder::kTiled) return decode_tiled_row(weight, row, out);
  const int64_t groups = weight.cols / format.group_size;
  const std::byte* codes =
      host_ptr<std::byte>(weight.parts.codes) + row * (weight.cols * format.bits / 8);
  const std::byte* scales = host_ptr<std::byte>(weight.parts.scales);
  const std::byte* biases = host_ptr<std::byte>(weight.parts.offsets);
  const auto decode_codes = [&](auto bits) {
    for (int64_t group = 0; group < groups; ++group) {
      const float scale = load_float(scales, row * groups + group, format.dtype);
      const float bias = load_float(biases, row * groups + group, format.dtype);
      for (int64_t i = 0; i < format.group_size; ++i) {
        const int64_t c = group * format.group_size + i;
        const uint32_t code = affine::code_at(codes, c, bits);
        out[static_cast<size_t>(c)] = scale * static_cast<float>(code) + bias;
      }
    }
  };
  if (format.bits == 4) return decode_codes(std::integral_constant<int, 4>{});
  decode_codes(format.bits);
}

}  // namespace
}  // namespace affine

const FormatTraits affine_format = {"affine", affine::name_of, affine::fits, affine::lay_out_parts,
                                    affine::decode};

}  // namespace moeflux
