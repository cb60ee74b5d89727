#include "quant/small_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

// Bytes and numbers as the standards print them.
TEST(SmallFloats, EdgesAreThoseOfTheStandards) {
  const auto both = [](float (*of)(uint8_t), uint8_t code, float value) {
    const float negative = of(static_cast<uint8_t>(code | 0x80u));
    EXPECT_EQ(of(code), value) << int{code};
    EXPECT_EQ(negative, -value) << int{code};
    EXPECT_TRUE(std::signbit(negative)) << int{code};
  };
  both(e4m3_to_float, 0x00, 0.0f);
  both(e4m3_to_float, 0x01, 0x1p-9f);
  both(e4m3_to_float, 0x07, 0.875f * 0x1p-6f);
  both(e4m3_to_float, 0x08, 0x1p-6f);
  both(e4m3_to_float, 0x78, 256.0f);  // the exponent that means infinity elsewhere
  both(e4m3_to_float, 0x7e, 448.0f);
  EXPECT_EQ(e8m0_to_float(0), 0x1p-127f);
  EXPECT_EQ(e8m0_to_float(1), std::numeric_limits<float>::min());
  EXPECT_EQ(e8m0_to_float(254), 0x1p127f);
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
