#include "quant/q8_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tensor/dtype.h"

namespace moeflux::q8_rows {
namespace {

std::vector<std::byte> encoded(const std::vector<float>& numbers) {
  std::vector<std::byte> row(static_cast<size_t>(row_bytes(static_cast<int64_t>(numbers.size()))),
                             std::byte{0xff});
  encode(row, numbers);
  return row;
}

std::vector<float> round_trip(const std::vector<float>& numbers) {
  std::vector<float> back(numbers.size());
  decode(back, encoded(numbers).data(), static_cast<int64_t>(numbers.size()));
  return back;
}

uint16_t scale_bits(const std::vector<std::byte>& row, size_t cols, size_t block) {
  uint16_t bits;
  std::memcpy(&bits, &row[cols + 2 * block], sizeof(bits));
  return bits;
}

TEST(Q8Rows, SizesAreMultiplesOf16AndTellTheColumns) {
  EXPECT_EQ(row_bytes(32), 48);
  EXPECT_EQ(row_bytes(128), 144);
  EXPECT_EQ(row_bytes(256), 272);
  EXPECT_EQ(row_bytes(576), 624);
  for (int64_t cols = 32; cols <= 4096; cols += 32) {
    EXPECT_EQ(row_bytes(cols) % 16, 0);
    EXPECT_EQ(cols_of(row_bytes(cols)), cols);
  }
}

TEST(Q8Rows, NumbersComeBackWithinHalfAStepOfTheirOwnBlock) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> numbers(96);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = uniform(engine) * std::ldexp(1.0f, 10 * static_cast<int>(i / 32) - 10);
  }
  const std::vector<std::byte> row = encoded(numbers);
  const std::vector<float> back = round_trip(numbers);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float step = to_float(F16{scale_bits(row, 96, i / 32)});
    // The largest may be rounded to 127 from a little above.
    EXPECT_LE(std::abs(back[i] - numbers[i]), step * 0.5625f) << i;
  }
}

TEST(Q8Rows, CodesAreRoundedToNearestEvenAndTheRestIsZeros) {
  std::vector<float> numbers(32, 0.0f);
  numbers[0] = 127.0f;  // a scale of 1
  numbers[1] = 2.5f;
  numbers[2] = -3.5f;
  numbers[3] = 0.5f;
  numbers[4] = -126.49f;
  const std::vector<std::byte> row = encoded(numbers);
  EXPECT_EQ(scale_bits(row, 32, 0), 0x3c00);
  const std::vector<int> expected = {127, 2, -4, 0, -126};
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(static_cast<int8_t>(row[i]), i < expected.size() ? expected[i] : 0) << i;
  }
  for (size_t i = 34; i < row.size(); ++i) EXPECT_EQ(row[i], std::byte{0}) << i;
}

TEST(Q8Rows, TinyNumbersStayWithinTheirCodes) {
  std::vector<float> numbers(32, 0.0f);
  numbers[0] = 127.0f * 1.49f * 0x1p-24f;  // whose scale becomes 2^-24
  numbers[1] = -numbers[0];
  const std::vector<std::byte> row = encoded(numbers);
  EXPECT_EQ(static_cast<int8_t>(row[0]), 127);
  EXPECT_EQ(static_cast<int8_t>(row[1]), -127);
  numbers[0] = 0x1p-30f;  // below any scale
  numbers[1] = 0.0f;
  EXPECT_EQ(round_trip(numbers), std::vector<float>(32, 0.0f));
}

TEST(Q8Rows, WhatIsNotFiniteMakesItsBlockNaNAndNoOther) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), -1e7f, -HUGE_VALF}) {
    std::vector<float> numbers(96, 1.0f);
    numbers[40] = bad;
    const std::vector<std::byte> row = encoded(numbers);
    EXPECT_EQ(scale_bits(row, 96, 1), 0x7e00) << bad;
    const std::vector<float> back = round_trip(numbers);
    for (size_t i = 0; i < back.size(); ++i) {
      EXPECT_EQ(static_cast<int8_t>(row[i]) != 0, i / 32 != 1) << bad << " " << i;
      EXPECT_EQ(std::isnan(back[i]), i / 32 == 1) << bad << " " << i;
    }
  }
}

}  // namespace
}  // namespace moeflux::q8_rows
