// MXFP4 by a table of a group's sixteen numbers; quant/formats/mxfp4_format.cc is the definition.
#include <cstdint>

#include "backend/cpu/row_decoder.h"
#include "quant/small_floats.h"

namespace moeflux::cpu {
namespace decoder_mxfp4 {
namespace {

constexpr int64_t kGroup = 32;

void decode(const Weight& weight, int64_t begin, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.codes)) +
                      begin * (weight.cols / 2);
  const auto* scales = reinterpret_cast<const uint8_t*>(host_ptr<std::byte>(weight.parts.scales)) +
                       begin * (weight.cols / kGroup);
  for (int64_t group = 0; group < count * weight.cols / kGroup; ++group) {
    const float scale = e8m0_to_float(scales[group]);
    float numbers[16];
    for (uint8_t i = 0; i < 16; ++i) numbers[i] = scale * e2m1_to_float(i);
    for (int64_t i = 0; i < kGroup / 2; ++i) {
      *out++ = numbers[*codes & 15];
      *out++ = numbers[*codes++ >> 4];
    }
  }
}

}  // namespace
}  // namespace decoder_mxfp4

extern const RowDecoder mxfp4_decoder = {"mxfp4", decoder_mxfp4::decode};

}  // namespace moeflux::cpu
