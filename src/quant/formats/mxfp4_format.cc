// MXFP4 as gpt-oss stores it: groups of 32 weights along a row share a power of two,
// w = 2^(scale - 127) * e2m1(code). Codes are two a byte, the even column in the low half; a code's
// bit 3 is the sign, the others index 0, 0.5, 1, 1.5, 2, 3, 4, 6. Scales are a byte each (E8M0);
// 255 is NaN. Source: OCP Microscaling Formats 1.0, and gpt-oss's published checkpoints.
#include <cstdint>

#include "quant/format_traits.h"
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

}  // namespace
}  // namespace mxfp4

const FormatTraits mxfp4_format = {"mxfp4", mxfp4::name_of, mxfp4::fits, mxfp4::lay_out_parts,
                                   mxfp4::decode};

}  // namespace moeflux
