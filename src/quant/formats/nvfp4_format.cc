// NVFP4: groups of 16 weights along a row share a scale of one byte (e4m3), w = e2m1(code) *
// e4m3(scale). The matrix may have an outer scale, an F32: w is multiplied by it, or divided, which
// is to multiply with its reciprocal in f32. Codes are two a byte, the even column in the low half.
// Source: NVIDIA's Model Optimizer (multiplies), compressed-tensors (divides), MLX (has none).
#include <cstring>

#include "quant/format_traits.h"
#include "quant/formats/tensor_formats.h"
#include "quant/small_floats.h"

namespace moeflux {
namespace nvfp4 {
namespace {

constexpr int64_t kGroup = 16;

OuterScale outer_of(const QuantFormat& format) { return static_cast<OuterScale>(format.variant); }

std::string name_of(const QuantFormat&) { return "nvfp4"; }

// Rows are whole groups of 32, so that each begins at a whole byte of four-byte words.
bool fits(const QuantFormat& format, int64_t cols) {
  return cols > 0 && cols % (2 * kGroup) == 0 && outer_of(format) <= OuterScale::kDivisor &&
         format == nvfp4_of(outer_of(format));
}

void lay_out_parts(Weight& weight) {
  weight.parts.codes = unplaced({weight.rows, weight.cols / 2}, DType::kU8);
  weight.parts.scales = unplaced({weight.rows, weight.cols / kGroup}, DType::kF8E4M3);
  if (outer_of(weight.format) == OuterScale::kNone) return;
  weight.parts.outer_scale = unplaced({1}, DType::kF32);
}

float outer_factor(const Weight& weight) {
  if (outer_of(weight.format) == OuterScale::kNone) return 1.0f;
  float outer;
  std::memcpy(&outer, host_ptr<std::byte>(weight.parts.outer_scale), sizeof(outer));
  return outer_of(weight.format) == OuterScale::kDivisor ? 1.0f / outer : outer;
}

void decode(const Weight& weight, int64_t row, std::span<float> out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      row * (weight.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.scales)) +
                       row * (weight.cols / kGroup);
  const float outer = outer_factor(weight);
  for (int64_t c = 0; c < weight.cols; ++c) {
    const auto code = static_cast<uint8_t>(codes[c / 2] >> (c % 2 * 4) & 15);
    out[static_cast<size_t>(c)] = e2m1_to_float(code) * e4m3_to_float(scales[c / kGroup]) * outer;
  }
}

}  // namespace
}  // namespace nvfp4

const FormatTraits nvfp4_format = {"nvfp4", nvfp4::name_of, nvfp4::fits, nvfp4::lay_out_parts,
                                   nvfp4::decode};

}  // namespace moeflux
