// The affine formats against packed bytes and values worked out by hand.
#include "quant/formats/affine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "quant/host_bytes_test_util.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

struct Packing {
  int bits;
  std::vector<uint32_t> codes;
  std::vector<uint8_t> bytes;
};

const std::vector<Packing>& packings() {
  static const std::vector<Packing> all = {
      {2, {0, 1, 2, 3}, {0xe4}},
      {3, {0, 1, 2, 3, 4, 5, 6, 7}, {0x88, 0xc6, 0xfa}},
      {4, {0, 1, 2, 3, 4, 5, 6, 7}, {0x10, 0x32, 0x54, 0x76}},
      {5, {0, 1, 2, 3, 4, 5, 6, 7}, {0x20, 0x88, 0x41, 0x8a, 0x39}},
      {5, {31, 0, 31, 0, 31, 0, 31, 0}, {0x1f, 0x7c, 0xf0, 0xc1, 0x07}},
      {6, {1, 2, 3, 63}, {0x81, 0x30, 0xfc}},
      {8, {0, 200, 255}, {0x00, 0xc8, 0xff}},
  };
  return all;
}

TEST(AffinePacking, CodesAreALittleEndianBitStream) {
  for (const Packing& p : packings()) {
    const auto* row = reinterpret_cast<const std::byte*>(p.bytes.data());
    for (size_t e = 0; e < p.codes.size(); ++e) {
      EXPECT_EQ(affine::code_at(row, static_cast<int64_t>(e), p.bits), p.codes[e])
          << p.bits << " bits, code " << e;
    }
    std::vector<uint8_t> packed(p.bytes.size(), 0);
    for (size_t e = 0; e < p.codes.size(); ++e) {
      affine::set_code(reinterpret_cast<std::byte*>(packed.data()), static_cast<int64_t>(e), p.bits,
                       p.codes[e]);
    }
    EXPECT_EQ(packed, p.bytes) << p.bits << " bits";
  }
}

TEST(DecodeRow, AppliesScaleAndBiasOfEachGroup) {
  // Two rows of 64 4-bit codes in groups of 32; bf16 scales 2, -0.5, 1, 0 and biases -3, 8, 0, 1.5.
  std::vector<uint8_t> codes(64);
  for (size_t i = 0; i < 64; ++i) codes[i] = static_cast<uint8_t>((i % 16) | ((15 - i % 16) << 4));
  HostBytes data(codes);
  HostBytes scales({0x00, 0x40, 0x00, 0xbf, 0x80, 0x3f, 0x00, 0x00});
  HostBytes biases({0x40, 0xc0, 0x00, 0x41, 0x00, 0x00, 0xc0, 0x3f});
  Weight w;
  w.format = QuantFormat::affine(4, 32, DType::kBf16);
  w.rows = 2;
  w.cols = 64;
  w.parts.codes = Tensor::view(data, 0, {2, 8}, DType::kU32);
  w.parts.scales = Tensor::view(scales, 0, {2, 2}, DType::kBf16);
  w.parts.offsets = Tensor::view(biases, 0, {2, 2}, DType::kBf16);
  std::vector<float> row(64);
  decode_row(w, 0, row);
  // Byte 3 holds codes 3 and 12; byte 16 starts the second group with codes 0 and 15.
  EXPECT_EQ(row[6], 2.0f * 3 - 3);
  EXPECT_EQ(row[7], 2.0f * 12 - 3);
  EXPECT_EQ(row[32], 8.0f);
  EXPECT_EQ(row[33], -0.5f * 15 + 8);
  decode_row(w, 1, row);
  EXPECT_EQ(row[2], 1.0f);
  EXPECT_EQ(row[3], 14.0f);
  EXPECT_EQ(row[63], 1.5f);
}

TEST(DecodeRow, ReadsPlainHalfAndBrainFloats) {
  HostBytes half({0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00});
  Weight w;
  w.format = QuantFormat::plain(DType::kF16);
  w.rows = 1;
  w.cols = 3;
  w.parts.codes = Tensor::view(half, 0, {1, 3}, DType::kF16);
  std::vector<float> row(3);
  decode_row(w, 0, row);
  EXPECT_EQ(row, (std::vector<float>{1.0f, -2.0f, 0x1p-24f}));
  HostBytes brain({0x80, 0x3f, 0x20, 0xc1, 0x00, 0x00});
  w.format = QuantFormat::plain(DType::kBf16);
  w.parts.codes = Tensor::view(brain, 0, {1, 3}, DType::kBf16);
  decode_row(w, 0, row);
  EXPECT_EQ(row, (std::vector<float>{1.0f, -10.0f, 0.0f}));
}

std::vector<float> group_of(uint32_t seed, float low, float high) {
  std::vector<float> values(64);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = low + (high - low) * static_cast<float>(seed >> 8) * 0x1p-24f;
  }
  return values;
}

TEST(AffineEncode, ErrorsStayWithinAStep) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (uint32_t seed = 1; seed <= 50; ++seed) {
      const float low = seed % 3 == 0 ? 0.5f : -1.0f;
      const std::vector<float> weights = group_of(seed, low, 1.0f + static_cast<float>(seed % 5));
      const affine::GroupParams params = affine::choose_group_params(weights, bits);
      const auto levels = static_cast<float>((1u << bits) - 1u);
      const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
      // Zero stays on the grid, so the grid may reach past one end or fall short of the other by up
      // to half a step when both signs occur; groups of one sign are not moved at all.
      const float step = std::abs(params.scale);
      EXPECT_LE(step, 2.0f * (*most - *least) / levels + 1e-6f) << bits << " bits, seed " << seed;
      for (const float weight : weights) {
        const uint32_t code = affine::encode(weight, params, bits);
        ASSERT_LE(code, static_cast<uint32_t>(levels));
        const float decoded = params.scale * static_cast<float>(code) + params.bias;
        EXPECT_LE(std::abs(decoded - weight), 1.01f * step) << bits << " bits, seed " << seed;
      }
    }
  }
}

TEST(AffineEncode, KeepsTheLargestMagnitudeExactly) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> weights = group_of(7, -0.5f, 0.5f);
      weights[11] = sign;
      const affine::GroupParams params = affine::choose_group_params(weights, bits);
      const uint32_t code = affine::encode(sign, params, bits);
      EXPECT_NEAR(params.scale * static_cast<float>(code) + params.bias, sign, 1e-6f)
          << bits << " bits";
      // The edge sits at code 0, so positive edges count downwards: scales may be negative.
      EXPECT_EQ(params.scale<0.0f, sign> 0.0f) << bits << " bits";
    }
  }
}

TEST(QuantFormat, KnowsItsBytesAndWhatFits) {
  const Parts<uint64_t> bytes = part_bytes(QuantFormat::affine(4, 64, DType::kBf16), 8, 128);
  EXPECT_EQ(bytes.codes, 512u);
  EXPECT_EQ(bytes.scales, 32u);
  EXPECT_EQ(bytes.offsets, 32u);
  EXPECT_EQ(weight_bytes(QuantFormat::plain(DType::kBf16), 3, 5), 30u);
  EXPECT_TRUE(is_valid(QuantFormat::affine(3, 64, DType::kBf16), 128));
  EXPECT_FALSE(is_valid(QuantFormat::affine(7, 64, DType::kBf16), 128));
  EXPECT_FALSE(is_valid(QuantFormat::affine(4, 64, DType::kBf16), 96));
  EXPECT_FALSE(is_valid(QuantFormat::plain(DType::kI32), 96));
  EXPECT_EQ(QuantFormat::affine(4, 64, DType::kBf16).to_string(), "affine-4/64");
}

}  // namespace
}  // namespace moeflux
