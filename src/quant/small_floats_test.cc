#include "quant/small_floats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/dtype.h"

namespace moeflux {
namespace {

// Every code against the formula of the standard, in double.
double meant(uint8_t code, int exponent_bits, int mantissa_bits, int bias) {
  const int exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

TEST(SmallFloats, E4m3IsTheFormulaButForItsTwoNan) {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<uint8_t>(i);
    const float value = e4m3_to_float(code);
    if ((i & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << i;
    } else {
      EXPECT_EQ(value, meant(code, 4, 3, 7)) << i;
      EXPECT_EQ(std::signbit(value), i >= 128) << i;
    }
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
}

TEST(SmallFloats, E5m2IsTheUpperHalfOfAnIeeeHalf) {
  for (int i = 0; i < 256; ++i) {
    const float value = e5m2_to_float(static_cast<uint8_t>(i));
    const float half = to_float(F16{static_cast<uint16_t>(i << 8)});
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(value)) << i;
    } else {
      EXPECT_EQ(value, half) << i;
      EXPECT_EQ(std::signbit(value), i >= 128) << i;
    }
  }
}

TEST(SmallFloats, E8m0IsAPowerOfTwo) {
  for (int i = 0; i < 255; ++i) {
    EXPECT_EQ(e8m0_to_float(static_cast<uint8_t>(i)), std::ldexp(1.0, i - 127)) << i;
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(SmallFloats, E2m1HasEightMagnitudesAndASign) {
  const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int i = 0; i < 16; ++i) {
    const float value = e2m1_to_float(static_cast<uint8_t>(i));
    EXPECT_EQ(std::abs(value), magnitudes[i % 8]) << i;
    EXPECT_EQ(std::signbit(value), i >= 8) << i;
  }
}

}  // namespace
}  // namespace moeflux
