// MXFP4 as gpt-oss stores it: groups of 32 weights along a row share a power of two,
// w = 2^(scale - 127) * e2m1(code). Codes are two a byte, the even column in the low half; a code's
// bit 3 is the sign, the others index 0, 0.5, 1, 1.5, 2, 3, 4, 6. Scales are a byte each (E8M0);
// 255 is NaN. In memory they are GGML's blocks, where 255 is 2^128. Source: OCP Microscaling
// Formats 1.0, and gpt-oss's published checkpoints.
#include <cstdint>
#include <cstring>

#include "quant/format_traits.h"
#include "quant/formats/blocks.h"
#include "quant/formats/tensor_formats.h"
#include "quant/small_floats.h"

namespace moeflux {
namespace mxfp4 {
namespace {

constexpr int64_t kGroup = 32;

std::string name_of(const QuantFormat&) { return "mxfp4"; }

bool fits(const QuantFormat& format, int64_t cols) {
  return cols > 0 && cols % kGroup == 0 && format == QuantFormat::of(mxfp4_format);
}

void lay_out_parts(Weight& weight) {
  weight.parts.codes = unplaced({weight.rows, weight.cols / 2}, DType::kU8);
  weight.parts.scales = unplaced({weight.rows, weight.cols / kGroup}, DType::kU8);
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      row * (weight.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.scales)) +
                       row * (weight.cols / kGroup);
  for (int64_t c = 0; c < weight.cols; ++c) {
    const auto code = static_cast<uint8_t>(codes[c / 2] >> (c % 2 * 4) & 15);
    out[static_cast<size_t>(c)] = e8m0_to_float(scales[c / kGroup]) * e2m1_to_float(code);
  }
}

std::optional<QuantFormat> in_memory(const QuantFormat&, int64_t, int64_t) {
  return QuantFormat::of(*find_format("mxfp4_gguf"));
}

void convert(const Weight& stored, const Parts<std::span<std::byte>>& from, int64_t begin,
             int64_t count, const Parts<std::span<std::byte>>& to) {
  const int64_t groups = stored.cols / kGroup;
  const auto* codes = reinterpret_cast<const uint8_t*>(from.codes.data()) + begin * groups * 16;
  const auto* scales = reinterpret_cast<const uint8_t*>(from.scales.data()) + begin * groups;
  auto* block = reinterpret_cast<uint8_t*>(to.codes.data());
  for (int64_t i = 0; i < count * groups; ++i, codes += 16, block += 17) {
    const uint64_t first = blocks::halves_of_16(codes);
    const uint64_t last = blocks::halves_of_16(codes + 8);
    // The low halves are the first sixteen of all 32.
    constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0fu;
    const uint64_t words[2] = {(first & kLow) | (last & kLow) << 4,
                               (first >> 4 & kLow) | (last & ~kLow)};
    block[0] = scales[i];
    std::memcpy(block + 1, words, sizeof(words));
  }
}

}  // namespace
}  // namespace mxfp4

const FormatTraits mxfp4_format = {.name = "mxfp4",
                                   .to_string = mxfp4::name_of,
                                   .is_valid = mxfp4::fits,
                                   .lay_out = mxfp4::lay_out_parts,
                                   .decode_row = mxfp4::decode,
                                   .in_memory = mxfp4::in_memory,
                                   .convert_rows = mxfp4::convert};

}  // namespace moeflux
