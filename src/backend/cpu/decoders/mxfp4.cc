// MXFP4 by a table of a group's sixteen numbers; quant/formats/mxfp4_format.cc is the definition.
#include <bit>
#include <cstdint>

#include "backend/cpu/row_decoder.h"

namespace moeflux::cpu {
namespace {

constexpr int64_t kGroup = 32;
constexpr float kNumbers[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// 2^(scale - 127) by its bits: 0 is below the normal numbers, 255 is NaN.
float scale_of(uint8_t scale) {
  if (scale == 0) return 0x1p-127f;
  return std::bit_cast<float>(scale == 255 ? 0x7fc00000u : static_cast<uint32_t>(scale) << 23);
}

void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      begin * (weight.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.scales)) +
                       begin * (weight.cols / kGroup);
  for (int64_t group = 0; group < count * weight.cols / kGroup; ++group) {
    const float scale = scale_of(scales[group]);
    float numbers[16];
    for (int i = 0; i < 16; ++i) numbers[i] = scale * kNumbers[i];
    for (int64_t i = 0; i < kGroup / 2; ++i) {
      *out++ = numbers[*codes & 15];
      *out++ = numbers[*codes++ >> 4];
    }
  }
}

}  // namespace

extern const RowDecoder mxfp4_decoder;
const RowDecoder mxfp4_decoder = {"mxfp4", decode};

}  // namespace moeflux::cpu
