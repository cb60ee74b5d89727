// NVFP4 by a table of a group's sixteen numbers; quant/formats/nvfp4_format.cc is the definition.
#include <cstdint>

#include "backend/cpu/row_decoder.h"
#include "quant/formats/tensor_formats.h"
#include "quant/small_floats.h"

namespace moeflux::cpu {
namespace decoder_nvfp4 {
namespace {

constexpr int64_t kGroup = 16;

float outer_of(const Weight& weight) {
  const auto outer = static_cast<OuterScale>(weight.format.variant);
  if (outer == OuterScale::kNone) return 1.0f;
  const float value = load_float(host_ptr<std::byte>(weight.parts.outer_scale), 0, DType::kF32);
  return outer == OuterScale::kDivisor ? 1.0f / value : value;
}

void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      begin * (weight.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.scales)) +
                       begin * (weight.cols / kGroup);
  const float outer = outer_of(weight);
  for (int64_t group = 0; group < count * weight.cols / kGroup; ++group) {
    const float scale = e4m3_to_float(scales[group]);
    float numbers[16];
    for (uint8_t i = 0; i < 16; ++i) numbers[i] = e2m1_to_float(i) * scale * outer;
    for (int64_t i = 0; i < kGroup / 2; ++i) {
      *out++ = numbers[*codes & 15];
      *out++ = numbers[*codes++ >> 4];
    }
  }
}

}  // namespace
}  // namespace decoder_nvfp4

extern const RowDecoder nvfp4_decoder = {"nvfp4", decoder_nvfp4::decode};

}  // namespace moeflux::cpu
