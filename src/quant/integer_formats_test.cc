// Whole numbers in files: the affine matrices that are made of them, and maps that lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "quant/formats/tensor_formats.h"
#include "quant/host_bytes_test_util.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

/// Any bits; scales are near 1.
struct Stored {
  Stored(const QuantFormat& format, int64_t rows, int64_t cols, uint32_t seed)
      : layout(lay_out(format, rows, cols)), bytes(place_parts(layout, 0, 64)) {
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 255u);
    const size_t width = format.dtype == DType::kF32 ? 4 : 2;
    for (size_t i = 0; i < parts().scales.size(); i += width) {
      const F16 f16 = to_f16(0.5f + static_cast<float>(random() % 1024) / 1024.0f);
      const Bf16 bf16 = to_bf16(to_float(f16));
      const float f32 = to_float(f16) / 3.0f;
      std::copy_n(format.dtype == DType::kF16   ? reinterpret_cast<const std::byte*>(&f16)
                  : format.dtype == DType::kF32 ? reinterpret_cast<const std::byte*>(&f32)
                                                : reinterpret_cast<const std::byte*>(&bf16),
                  width, parts().scales.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  Parts<std::span<std::byte>> parts() { return layout.bytes_in(bytes.data()); }

  Weight layout;
  std::vector<std::byte> bytes;
};

std::vector<float> rows_of(const Weight& layout, const std::vector<std::byte>& bytes) {
  const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
  HostBytes memory(std::vector<uint8_t>(begin, begin + bytes.size()));
  const Weight weight = layout.at(memory, 0);
  std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
  for (int64_t row = 0; row < weight.rows; ++row) {
    decode_row(weight, row, {values.data() + row * weight.cols, static_cast<size_t>(weight.cols)});
  }
  return values;
}

QuantFormat with(QuantFormat format, uint8_t variant) {
  format.variant = variant;
  return format;
}

TEST(IntegerFormats, AffineMatricesOfThemAreTheSameNumbers) {
  std::vector<QuantFormat> formats;
  for (const int group : {0, 32, 64, 128, 256}) {
    for (const DType scales : {DType::kF16, DType::kBf16}) {
      formats.push_back(integers_of(awq_format, 4, group, scales));
      for (const int bits : {4, 8}) {
        formats.push_back(integers_of(gptq_format, bits, group, scales));
        formats.push_back(with(formats.back(), kZerosLessOne));
        formats.push_back(integers_of(packed_int_format, bits, group, scales));
        formats.push_back(with(formats.back(), kZeroPoints));
      }
      formats.push_back(with(integers_of(packed_int_format, 8, group, scales), kSignedBytes));
      formats.push_back(with(formats.back(), kSignedBytes | kZeroPoints));
    }
  }
  uint32_t seed = 0;
  for (const QuantFormat& format : formats) {
    for (const int64_t rows : {int64_t{32}, int64_t{40}}) {
      Stored stored(format, rows, 256, ++seed);
      const std::vector<float> expected = rows_of(stored.layout, stored.bytes);
      const QuantFormat memory = format_in_memory(format, rows, 256);
      ASSERT_TRUE(memory.is_affine() && is_valid(memory, 256)) << format.to_string();
      for (const WeightOrder order : {WeightOrder::kRowMajor, WeightOrder::kTiled}) {
        if (order == WeightOrder::kTiled && rows % 16 != 0) continue;
        Weight made = lay_out(memory.with_order(order), rows, 256);
        std::vector<std::byte> bytes(place_parts(made, 0, 64));
        arrange_matrix(made, made.bytes_in(bytes.data()), stored.layout, stored.parts());
        EXPECT_EQ(rows_of(made, bytes), expected)
            << format.to_string() << " variant " << int{format.variant} << " as "
            << made.format.to_string();
      }
    }
  }
}

TEST(IntegerFormats, WhatHasNoAffineFormIsInGroupsOfItsOwn) {
  const QuantFormat formats[] = {
      with(integers_of(gptq_format, 4, 64, DType::kF16), kColumnMap),
      with(integers_of(gptq_format, 8, 64, DType::kF16), kColumnMap | kZerosLessOne),
      with(integers_of(packed_int_format, 8, 64, DType::kBf16), kColumnMap),
      with(integers_of(packed_int_format, 4, 64, DType::kF32), kColumnMap | kZeroPoints),
      with(integers_of(packed_int_format, 4, 0, DType::kF32), kZeroPoints),
      integers_of(gptq_format, 4, 16, DType::kF16),
      integers_of(gptq_format, 4, 48, DType::kF32),
      integers_of(awq_format, 4, 64, DType::kF32),
      integers_of(awq_format, 4, 24, DType::kBf16)};
  uint32_t seed = 0;
  for (const QuantFormat& format : formats) {
    ASSERT_TRUE(is_valid(format, 256)) << format.to_string();
    Stored stored(format, 40, 256, ++seed);
    const QuantFormat memory = format_in_memory(format, 40, 256);
    ASSERT_TRUE(memory.kind == &grouped_int_format && is_valid(memory, 256)) << format.to_string();
    Weight made = lay_out(memory, 40, 256);
    std::vector<std::byte> bytes(place_parts(made, 0, 64));
    arrange_matrix(made, made.bytes_in(bytes.data()), stored.layout, stored.parts());
    EXPECT_EQ(rows_of(made, bytes), rows_of(stored.layout, stored.bytes)) << format.to_string();
  }
  EXPECT_EQ(format_in_memory(QuantFormat::plain(DType::kBf16), 32, 256),
            QuantFormat::plain(DType::kBf16));
}

TEST(IntegerFormats, SignedBytesAreNumbersThemselves) {
  const QuantFormat format =
      with(integers_of(packed_int_format, 8, 0, DType::kF32), kSignedBytes | kZeroPoints);
  Stored stored(format, 1, 8, 3);
  const std::vector<int8_t> codes = {-128, -127, -1, 0, 1, 5, 126, 127};
  const float scale = 0.5f;
  std::memcpy(stored.parts().codes.data(), codes.data(), codes.size());
  std::memcpy(stored.parts().scales.data(), &scale, sizeof(scale));
  stored.parts().offsets[0] = std::byte{0xfd};  // -3
  const std::vector<float> expected = {-62.5f, -62.0f, 1.0f, 1.5f, 2.0f, 4.0f, 64.5f, 65.0f};
  EXPECT_EQ(rows_of(stored.layout, stored.bytes), expected);
}

TEST(IntegerFormats, AMapThatLiesLeadsNowhere) {
  for (const FormatTraits* kind : {&gptq_format, &packed_int_format}) {
    const QuantFormat format = with(integers_of(*kind, 4, 64, DType::kF16), kColumnMap);
    Stored stored(format, 16, 256, 5);  // a map of random words
    EXPECT_EQ(rows_of(stored.layout, stored.bytes).size(), 16u * 256u);
    const std::span<std::byte> map = stored.parts().column_map;
    std::fill(map.begin(), map.end(), std::byte{0xff});
    const std::vector<float> beyond = rows_of(stored.layout, stored.bytes);
    std::fill(map.begin(), map.end(), std::byte{0});
    for (size_t c = 0; c < 256; ++c) map[4 * c] = std::byte{3};
    EXPECT_EQ(rows_of(stored.layout, stored.bytes), beyond);  // the last group
  }
}

TEST(IntegerFormats, FieldsThatDoNotGoTogetherAreRefused) {
  EXPECT_TRUE(is_valid(integers_of(packed_int_format, 4, 32, DType::kBf16), 64));
  EXPECT_FALSE(is_valid(integers_of(packed_int_format, 3, 32, DType::kBf16), 64));
  EXPECT_FALSE(is_valid(integers_of(packed_int_format, 4, 48, DType::kBf16), 64));
  EXPECT_FALSE(is_valid(integers_of(packed_int_format, 4, -32, DType::kBf16), 64));
  EXPECT_FALSE(is_valid(integers_of(packed_int_format, 4, 32, DType::kI32), 64));
  EXPECT_FALSE(is_valid(integers_of(packed_int_format, 4, 4, DType::kBf16), 60));
  EXPECT_FALSE(
      is_valid(with(integers_of(packed_int_format, 4, 32, DType::kBf16), kSignedBytes), 64));
  EXPECT_TRUE(
      is_valid(with(integers_of(packed_int_format, 8, 32, DType::kBf16), kSignedBytes), 64));
  EXPECT_FALSE(is_valid(with(integers_of(packed_int_format, 8, 32, DType::kBf16), 8), 64));
  EXPECT_FALSE(is_valid(integers_of(awq_format, 8, 32, DType::kF16), 64));
  EXPECT_FALSE(is_valid(with(integers_of(awq_format, 4, 32, DType::kF16), kColumnMap), 64));
}

}  // namespace
}  // namespace moeflux
