#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/host_bytes.h"

namespace moeflux {
namespace {

using testing::decode;
using testing::expect_error;

constexpr int64_t kMatrixRows = 6;
constexpr int64_t kCols = 256;

// Rows of both signs, of one sign, with an extreme, and of zeros.
std::vector<float> numbers() {
  std::vector<float> values(static_cast<size_t>(kMatrixRows * kCols));
  uint32_t seed = 5;
  for (size_t i = 0; i < values.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float uniform = static_cast<float>(seed >> 8) * 0x1p-24f;
    const size_t row = i / static_cast<size_t>(kCols);
    const float low[] = {-1.0f, 0.5f, -3.0f, -0.1f, 0.0f, -100.0f};
    const float high[] = {1.0f, 2.0f, -1.0f, 0.1f, 0.0f, 300.0f};
    values[i] = low[row] + (high[row] - low[row]) * uniform;
    if (row == 3 && i % 50 == 0) values[i] = 4.0f;
  }
  return values;
}

std::vector<QuantFormat> formats() {
  std::vector<QuantFormat> all;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128}) all.push_back(QuantFormat::affine(bits, group, dtype));
    }
  }
  return all;
}

std::string describe(const QuantFormat& format) {
  return format.to_string() + " " + std::string(dtype_name(format.dtype));
}

// The two ends of the grid that a group's stored scale and bias span.
struct Grid {
  float step;
  float low;
  float high;
};

Grid grid_of(const EncodedParts& matrix, const QuantFormat& format, size_t group) {
  const auto at = static_cast<int64_t>(group);
  const float scale = load_float(matrix.scales.data(), at, format.dtype);
  const float bias = load_float(matrix.offsets.data(), at, format.dtype);
  const float end = bias + scale * static_cast<float>((1 << format.bits) - 1);
  return {std::abs(scale), std::min(bias, end), std::max(bias, end)};
}

TEST(QuantizeAffine, NumbersInsideTheGridAreOffByHalfAStepAtMost) {
  const std::vector<float> values = numbers();
  for (const QuantFormat& format : formats()) {
    const auto matrix = quantize_affine({values, kMatrixRows, kCols}, format);
    ASSERT_TRUE(matrix.ok()) << matrix.error().to_string();
    const std::vector<float> decoded = decode(*matrix, format, kMatrixRows, kCols);
    for (size_t i = 0; i < values.size(); ++i) {
      const Grid grid = grid_of(*matrix, format, i / static_cast<size_t>(format.group_size));
      const float reachable = std::clamp(values[i], grid.low, grid.high);
      ASSERT_LE(std::abs(decoded[i] - reachable), 0.5001f * grid.step + 1e-6f * std::abs(values[i]))
          << describe(format) << ", element " << i;
    }
  }
}

TEST(QuantizeAffine, TheGridEndsAtMostAStepAndTheRoundingBeforeAnExtreme) {
  const std::vector<float> values = numbers();
  for (const QuantFormat& format : formats()) {
    const auto matrix = quantize_affine({values, kMatrixRows, kCols}, format);
    ASSERT_TRUE(matrix.ok()) << matrix.error().to_string();
    const float ulp = format.dtype == DType::kF32    ? 0x1p-24f
                      : format.dtype == DType::kBf16 ? 0x1p-8f
                                                     : 0x1p-11f;
    for (size_t i = 0; i < values.size(); ++i) {
      const Grid grid = grid_of(*matrix, format, i / static_cast<size_t>(format.group_size));
      const float beyond = std::max(grid.low - values[i], values[i] - grid.high);
      const float widest = std::max(std::abs(grid.low), std::abs(grid.high));
      ASSERT_LE(beyond, 1.01f * grid.step + 3.0f * ulp * widest)
          << describe(format) << ", element " << i;
    }
  }
}

TEST(QuantizeAffine, PartsHaveTheSizesOfACheckpoint) {
  const std::vector<float> values = numbers();
  for (const QuantFormat& format : formats()) {
    const auto matrix = quantize_affine({values, kMatrixRows, kCols}, format);
    ASSERT_TRUE(matrix.ok());
    const Parts<uint64_t> bytes = part_bytes(format, kMatrixRows, kCols);
    EXPECT_EQ(matrix->codes.size(), bytes.codes) << describe(format);
    EXPECT_EQ(matrix->scales.size(), bytes.scales) << describe(format);
    EXPECT_EQ(matrix->offsets.size(), bytes.offsets) << describe(format);
  }
}

TEST(QuantizeAffine, ZerosStayZeros) {
  const std::vector<float> zeros(128, 0.0f);
  for (const QuantFormat& format : formats()) {
    const auto matrix = quantize_affine({zeros, 1, 128}, format);
    ASSERT_TRUE(matrix.ok());
    EXPECT_EQ(decode(*matrix, format, 1, 128), zeros) << describe(format);
  }
}

TEST(QuantizeAffine, RefusesWhatItCannotStore) {
  std::vector<float> values(64, 1.0f);
  const QuantFormat format = QuantFormat::affine(4, 32, DType::kBf16);
  expect_error(quantize_affine({values, 1, 64}, QuantFormat::affine(4, 128, DType::kBf16)),
               ErrorCode::kInvalidArgument, {"64", "affine-4/128"});
  expect_error(quantize_affine({values, 1, 64}, QuantFormat::plain(DType::kF32)),
               ErrorCode::kInvalidArgument, {"f32"});
  values[40] = std::numeric_limits<float>::quiet_NaN();
  expect_error(quantize_affine({values, 1, 64}, format), ErrorCode::kInvalidArgument,
               {"row 0", "columns 32 to 63", "not finite"});
  values[40] = 1e6f;
  expect_error(quantize_affine({values, 1, 64}, QuantFormat::affine(4, 32, DType::kF16)),
               ErrorCode::kInvalidArgument, {"columns 32 to 63", "F16"});
}

// Scales and codes that mlx.core.quantize(mode="mxfp4") of mlx 0.32.4 gives.
TEST(QuantizeMxfp4, ScalesAreTheLeastUnderWhichTheExtremeFits) {
  const std::vector<std::pair<float, int>> scales = {
      {1.0f, 125},      {1.5f, 125}, {1.5078125f, 126}, {6.0f, 127},
      {6.046875f, 128}, {0.0f, 127}, {-6.0f, 127},      {3e38f, 253}};
  for (const auto& [extreme, scale] : scales) {
    std::vector<float> values(32, 0.0f);
    values[7] = extreme;
    const auto made = quantize_mxfp4({values, 1, 32});
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(static_cast<int>(made->scales[0]), scale) << extreme;
  }
}

TEST(QuantizeMxfp4, CodesAreTheNearestAndTheSmallerOnTies) {
  std::vector<float> values(32, 0.0f);
  const std::vector<std::pair<float, int>> codes = {
      {6.0f, 7},  {5.0f, 6},   {5.1f, 7},  {-3.5f, 13}, {2.5f, 4},   {-1.25f, 10}, {1.75f, 3},
      {0.25f, 0}, {-0.25f, 0}, {0.26f, 1}, {-0.75f, 9}, {-6.0f, 15}, {0.0f, 0}};
  for (size_t i = 0; i < codes.size(); ++i) values[i] = codes[i].first;
  const auto made = quantize_mxfp4({values, 1, 32});
  ASSERT_TRUE(made.ok());
  for (size_t i = 0; i < codes.size(); ++i) {
    const int pair = static_cast<int>(made->codes[i / 2]);
    EXPECT_EQ(i % 2 == 0 ? pair & 15 : pair >> 4, codes[i].second) << codes[i].first;
  }
}

TEST(QuantizeMxfp4, RefusesWhatItCannotStore) {
  std::vector<float> values(48, 1.0f);
  expect_error(quantize_mxfp4({values, 1, 48}), ErrorCode::kInvalidArgument, {"48", "mxfp4"});
  values.resize(64);
  values[40] = std::numeric_limits<float>::infinity();
  expect_error(quantize_mxfp4({values, 2, 32}), ErrorCode::kInvalidArgument, {"row 1", "finite"});
}

}  // namespace
}  // namespace moeflux
