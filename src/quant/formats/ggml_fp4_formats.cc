// GGML's blocks of 4-bit floats, e2m1: a sign, and 0, 0.5, 1, 1.5, 2, 3, 4 or 6.
//   MXFP4  17 bytes of 32 numbers: u8 e; 16 bytes of codes, w = 2^(e - 127) * e2m1(code)
//   NVFP4  36 bytes of 64 numbers: u8 scales[4] of 16 numbers each; 32 bytes of codes,
//          w = ue4m3(scale) * e2m1(code)
// The low halves of a group's bytes are the first half of its numbers. No e means NaN, as
// in GGML, where 255 is 2^128; there a scale of NVFP4 is 0 for 0x7f, and its bit 7 means nothing.
// Source: the format as GGUF files have it (ggml-quants of llama.cpp).
#include <cmath>

#include "quant/formats/blocks.h"

namespace moeflux {
namespace {

/// Twice the number of a code.
float e2m1_doubled(int code) {
  constexpr float kMagnitudes[8] = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 6.0f, 8.0f, 12.0f};
  const float magnitude = kMagnitudes[code & 7];
  // Their zero has no sign.
  return (code & 8) != 0 && magnitude != 0.0f ? -magnitude : magnitude;
}

float mxfp4(const uint8_t* block, int e) {
  // Half of the scale: 2^128 is no float.
  return std::ldexp(1.0f, block[0] - 128) * e2m1_doubled(blocks::nibble_of_32(block + 1, e));
}

/// Half of a scale of 4 bits of exponent and 3 of fraction.
float ue4m3_halved(uint8_t scale) {
  if (scale == 0x7f) return 0.0f;
  const int exponent = scale >> 3 & 15;
  const int fraction = scale & 7;
  if (exponent == 0) return std::ldexp(static_cast<float>(fraction), -10);
  return std::ldexp(static_cast<float>(8 + fraction), exponent - 11);
}

float nvfp4(const uint8_t* block, int e) {
  const int group = e / 16;
  const int i = e % 16;
  const uint8_t byte = block[4 + group * 8 + i % 8];
  return ue4m3_halved(block[group]) * e2m1_doubled(i < 8 ? byte & 15 : byte >> 4);
}

}  // namespace

std::span<const FormatTraits> ggml_fp4_formats() {
  // Other files hold the same kinds of numbers in other layouts: those have names of their own.
  static const FormatTraits kFormats[] = {
      make_block_format("mxfp4_gguf", {32, 17, mxfp4}),
      make_block_format("nvfp4_gguf", {64, 36, nvfp4}),
  };
  return kFormats;
}

}  // namespace moeflux
