// Floats of 8 and 4 bits as f32: numbers and scales of storage formats. The plain meaning; kernels
// have their own ways to the same bits.
// Source: OCP Microscaling Formats 1.0, OCP 8-bit Floating Point 1.0.
#pragma once

#include <bit>
#include <cstdint>

namespace moeflux {

/// Bit 3 of `code` is the sign, bits 0 to 2 index 0, 0.5, 1, 1.5, 2, 3, 4, 6. Other bits are
/// ignored.
constexpr float e2m1_to_float(uint8_t code) {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[code & 7u];
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

/// 2^(scale - 127); 255 is NaN.
constexpr float e8m0_to_float(uint8_t scale) {
  if (scale == 255) return std::bit_cast<float>(0x7fc00000u);
  if (scale == 0) return 0x1p-127f;  // below the normal numbers
  return std::bit_cast<float>(static_cast<uint32_t>(scale) << 23);
}

/// No infinities; 0x7f and 0xff are NaN; the largest number is 448.
constexpr float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = code >> 3 & 15u;
  const uint32_t mantissa = code & 7u;
  if ((code & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {  // multiples of 2^-9
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 120u) << 23 | mantissa << 20);
}

}  // namespace moeflux
