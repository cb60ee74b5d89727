#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

F16 half(int bits) { return {static_cast<uint16_t>(bits)}; }
Bf16 brain(int bits) { return {static_cast<uint16_t>(bits)}; }

// By IEEE 754, in double.
double half_meant(int bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits >= 0x8000 ? -magnitude : magnitude;
}

TEST(F16, EveryCodeIsItsNumberAndComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;  // no numbers
    const float value = to_float(half(bits));
    EXPECT_EQ(value, half_meant(bits)) << bits;
    EXPECT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    EXPECT_EQ(to_f16(value).bits, bits);
  }
}

// Between every two neighbours, the largest number and infinity included.
TEST(F16, TiesGoToTheEvenNeighbour) {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    // As if exponents went on, infinity is 65536.
    const auto tie = static_cast<float>((half_meant(bits) + half_meant(bits + 1)) / 2);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(to_f16(tie).bits, even) << tie;
    ASSERT_EQ(to_f16(std::nextafter(tie, 0.0f)).bits, bits) << tie;
    ASSERT_EQ(to_f16(std::nextafter(tie, kInfinity)).bits, bits + 1) << tie;
    ASSERT_EQ(to_f16(-tie).bits, even | 0x8000) << tie;
    ASSERT_EQ(to_f16(std::nextafter(-tie, 0.0f)).bits, bits | 0x8000) << tie;
    ASSERT_EQ(to_f16(std::nextafter(-tie, -kInfinity)).bits, (bits + 1) | 0x8000) << tie;
  }
}

TEST(F16, WhatIsNoNumberStaysSo) {
  EXPECT_EQ(to_f16(kInfinity).bits, 0x7c00);
  EXPECT_EQ(to_f16(-kInfinity).bits, 0xfc00);
  EXPECT_EQ(to_f16(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(to_f16(-65520.0f).bits, 0xfc00);
  EXPECT_EQ(to_f16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::min()).bits, 0x8000);
  EXPECT_EQ(to_float(half(0x7c00)), kInfinity);
  EXPECT_EQ(to_float(half(0xfc00)), -kInfinity);
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u}) {
    EXPECT_TRUE(std::isnan(to_float(to_f16(std::bit_cast<float>(bits))))) << bits;
  }
  for (int bits = 0x7c01; bits < 0x8000; ++bits) {
    ASSERT_TRUE(std::isnan(to_float(half(bits)))) << bits;
  }
}

TEST(Bf16, TiesGoToTheEvenNeighbour) {
  for (int bits = 0; bits < 0x7f80; ++bits) {
    const float tie = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16 | 0x8000u);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(to_bf16(to_float(brain(bits))).bits, bits);
    ASSERT_EQ(to_bf16(tie).bits, even) << tie;
    ASSERT_EQ(to_bf16(std::nextafter(tie, 0.0f)).bits, bits) << tie;
    ASSERT_EQ(to_bf16(std::nextafter(tie, kInfinity)).bits, bits + 1) << tie;
    ASSERT_EQ(to_bf16(-tie).bits, even | 0x8000) << tie;
  }
}

TEST(Bf16, WhatIsNoNumberStaysSo) {
  EXPECT_EQ(to_bf16(kInfinity).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  // The bits of the last two would round to infinity and to zero.
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu}) {
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(bits))))) << bits;
  }
}

TEST(LoadFloat, ReadsElementsAtAnyAddress) {
  std::vector<std::byte> bytes(1 + 3 * sizeof(double));
  const auto put = [&](int i, auto value) {
    std::memcpy(bytes.data() + 1 + i * static_cast<int>(sizeof(value)), &value, sizeof(value));
  };
  put(2, 1.5);
  EXPECT_EQ(load_float(bytes.data() + 1, 2, DType::kF64), 1.5f);
  put(1, 2.5f);
  EXPECT_EQ(load_float(bytes.data() + 1, 1, DType::kF32), 2.5f);
  put(2, half(0x3c01));
  EXPECT_EQ(load_float(bytes.data() + 1, 2, DType::kF16), 1.0f + 0x1p-10f);
  put(2, brain(0x3f81));
  EXPECT_EQ(load_float(bytes.data() + 1, 2, DType::kBf16), 1.0f + 0x1p-7f);
}

TEST(DType, EverySpellingIsItsOwn) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype) << dtype_name(dtype);
    EXPECT_GT(dtype_bits(dtype), 0);
  }
  EXPECT_EQ(parse_dtype("bf16"), std::nullopt);
  EXPECT_EQ(dtype_bits(DType::kBf16), 16);
}

}  // namespace
}  // namespace moeflux
