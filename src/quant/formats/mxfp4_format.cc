// MXFP4 as gpt-oss stores it: groups of 32 weights along a row share a power of two,
// w = 2^(scale - 127) * e2m1(code). Codes are two a byte, the even column in the low half; a code's
// bit 3 is the sign, the others index 0, 0.5, 1, 1.5, 2, 3, 4, 6. Scales are a byte each (E8M0);
// 255 is NaN. Source: OCP Microscaling Formats 1.0, and gpt-oss's published checkpoints.
#include <cmath>
#include <cstdint>

#include "quant/format_traits.h"

namespace moeflux {
namespace {

constexpr int64_t kGroup = 32;

std::string name_of(const QuantFormat&) { return "mxfp4"; }

bool fits(const QuantFormat&, int64_t cols) { return cols % kGroup == 0; }

void lay_out_parts(Weight& weight) {
  weight.parts.codes = unplaced({weight.rows, weight.cols / 2}, DType::kU8);
  weight.parts.scales = unplaced({weight.rows, weight.cols / kGroup}, DType::kU8);
}

float e2m1(uint8_t code) {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[code & 7u];
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

float e8m0(uint8_t scale) {
  return scale == 255 ? std::nanf("") : std::ldexp(1.0f, static_cast<int>(scale) - 127);
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      row * (weight.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.scales)) +
                       row * (weight.cols / kGroup);
  for (int64_t c = 0; c < weight.cols; ++c) {
    const auto code = static_cast<uint8_t>(codes[c / 2] >> (c % 2 * 4) & 15);
    out[static_cast<size_t>(c)] = e8m0(scales[c / kGroup]) * e2m1(code);
  }
}

}  // namespace

extern const FormatTraits mxfp4_format;
const FormatTraits mxfp4_format = {"mxfp4", name_of, fits, lay_out_parts, decode};

}  // namespace moeflux
