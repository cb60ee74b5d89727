#include "quant/formats/blocks.h"

#include <string>

namespace moeflux {
namespace blocks {
namespace {

std::string name_of(const QuantFormat& format) {
  std::string name(format.kind->name);
  return format.outer_scale ? name + " scaled" : name;
}

bool fits(const QuantFormat& format, int64_t cols) {
  return cols % format.kind->block.elements == 0;
}

void lay_out_parts(Weight& weight) {
  const BlockLayout& block = weight.format.kind->block;
  weight.parts.codes =
      unplaced({weight.rows, weight.cols / block.elements * block.bytes}, DType::kU8);
  if (weight.format.outer_scale) weight.parts.outer_scale = unplaced({1}, DType::kF32);
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const BlockLayout& layout = weight.format.kind->block;
  const auto* block = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      row * (weight.cols / layout.elements * layout.bytes);
  for (int64_t begin = 0; begin < weight.cols; begin += layout.elements, block += layout.bytes) {
    for (int e = 0; e < layout.elements; ++e) {
      out[static_cast<size_t>(begin + e)] = layout.number(block, e);
    }
  }
  if (!weight.has(PartRole::kOuterScale)) return;
  const float scale = load_float(host_ptr<std::byte>(weight.parts.outer_scale), 0, DType::kF32);
  for (float& number : out) number *= scale;
}

}  // namespace
}  // namespace blocks

FormatTraits make_block_format(std::string_view name, const BlockLayout& layout) {
  return {name, blocks::name_of, blocks::fits, blocks::lay_out_parts, blocks::decode, layout};
}

}  // namespace moeflux
