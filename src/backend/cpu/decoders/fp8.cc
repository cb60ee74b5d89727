// FP8 by a table of its 256 numbers; quant/formats/fp8_format.cc is the definition.
#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/cpu/row_decoder.h"
#include "quant/small_floats.h"

namespace moeflux::cpu {
namespace decoder_fp8 {
namespace {

constexpr std::array<float, 256> kNumbers = [] {
  std::array<float, 256> numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = e4m3_to_float(static_cast<uint8_t>(i));
  return numbers;
}();

float scale_at(const std::byte* scales, int64_t at, DType dtype) {
  if (dtype == DType::kF8E8M0) return e8m0_to_float(static_cast<uint8_t>(scales[at]));
  return load_float(scales, at, dtype);
}

void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const QuantFormat& format = weight.format;
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      begin * weight.cols;
  const std::byte* scales = host_ptr<std::byte>(weight.parts.scales);
  const int64_t groups = weight.parts.scales.dim(1);
  const int64_t width = format.group_size == 0 ? weight.cols : format.group_size;
  for (int64_t row = begin; row < begin + count; ++row) {
    const int64_t first = format.group_rows == 0 ? 0 : row / format.group_rows * groups;
    for (int64_t group = 0; group < groups; ++group) {
      const float scale = scale_at(scales, first + group, format.dtype);
      const int64_t columns = std::min(width, weight.cols - group * width);
      for (int64_t i = 0; i < columns; ++i) *out++ = scale * kNumbers[*codes++];
    }
  }
}

}  // namespace
}  // namespace decoder_fp8

extern const RowDecoder fp8_decoder = {"fp8", decoder_fp8::decode};

}  // namespace moeflux::cpu
