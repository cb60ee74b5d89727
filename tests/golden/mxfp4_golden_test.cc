// MXFP4: its numbers, and gpt-oss's checkpoint against logits that transformers computed from
// independently decoded weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "quant/format_traits.h"
#include "tests/support/device_session.h"
#include "tests/support/golden_file.h"
#include "tests/support/packed_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

const std::string kFolder = tests_directory() + "/golden/formats/mxfp4_gpt_oss";

QuantFormat mxfp4() {
  const FormatTraits* found = find_format("mxfp4");
  EXPECT_NE(found, nullptr);
  return QuantFormat::of(*found);
}

/// Random codes, and scales near 1; `decoded` is what decode_row() says.
struct Mxfp4Matrix {
  Mxfp4Matrix(int64_t rows, int64_t cols, uint32_t seed) : layout(lay_out(mxfp4(), rows, cols)) {
    std::mt19937 random(seed);
    bytes.resize(place_parts(layout, 0, 64));
    const Parts<std::span<std::byte>> parts = layout.bytes_in(bytes.data());
    for (std::byte& code : parts.codes) code = static_cast<std::byte>(random() & 255u);
    for (std::byte& scale : parts.scales) scale = static_cast<std::byte>(122 + random() % 9);
  }
  Weight on(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers) const {
    auto buffer = device.allocate(bytes.size(), MemoryKind::kDevice);
    EXPECT_TRUE(buffer.ok() && device.upload(**buffer, 0, bytes).ok());
    buffers.push_back(std::move(buffer).value());
    return layout.at(*buffers.back(), 0);
  }

  Weight layout;
  std::vector<std::byte> bytes;
};

TEST(Mxfp4, CodesAndScalesAreThoseOfTheStandard) {
  Mxfp4Matrix m(2, 64, 1);
  const Parts<std::span<std::byte>> parts = m.layout.bytes_in(m.bytes.data());
  ASSERT_EQ(parts.codes.size(), 64u);
  ASSERT_EQ(parts.scales.size(), 4u);
  for (size_t i = 0; i < 64; ++i) parts.codes[i] = static_cast<std::byte>(i % 16 * 17);
  parts.codes[0] = std::byte{0x21};  // the even column is the low half
  const uint8_t scales[] = {127, 129, 0, 255};
  for (size_t i = 0; i < 4; ++i) parts.scales[i] = static_cast<std::byte>(scales[i]);
  const auto device = make_test_device({.device = "reference"});
  std::vector<std::unique_ptr<Buffer>> buffers;
  const Weight w = m.on(*device, buffers);
  std::vector<float> first(64), second(64);
  decode_row(w, 0, first);
  decode_row(w, 1, second);
  EXPECT_EQ(first[0], 0.5f);
  EXPECT_EQ(first[1], 1.0f);
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t i = 1; i < 16; ++i) {
    const float expected = (i >= 8 ? -1.0f : 1.0f) * magnitudes[i % 8];
    EXPECT_EQ(first[2 * i], expected) << i;
    EXPECT_EQ(first[2 * i + 1], expected) << i;
    EXPECT_EQ(first[32 + 2 * i], 4 * expected) << i;
    EXPECT_EQ(second[2 * i], 0x1p-127f * expected) << i;
    EXPECT_TRUE(std::isnan(second[32 + 2 * i])) << i;
  }
}

TEST(Mxfp4, RowsThatAreNoWholeGroupsAreRefused) {
  EXPECT_TRUE(is_valid(mxfp4(), 96));
  EXPECT_FALSE(is_valid(mxfp4(), 48));
  EXPECT_EQ(mxfp4().to_string(), "mxfp4");
}

class Mxfp4Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Mxfp4Golden, LogitsOfGptOssAgree) {
  auto golden = read_golden(kFolder + "/golden.safetensors");
  ASSERT_TRUE(golden.contains("tokens") && golden.contains("logits"));
  const std::vector<TokenId>& tokens = golden["tokens"].ints;
  const RunOutput run = run_model(kFolder, tokens, {.device = GetParam()});
  ASSERT_EQ(run.logits.size(), golden["logits"].floats.size());
  for (int64_t i = 0; i < golden["logits"].rows(); ++i) {
    EXPECT_GE(cosine(run.row(i), golden["logits"].row(i)), 0.999999) << "position " << i;
  }
  // Neither chunks, nor an expert cache of one slot, nor a pack changes a bit.
  const auto some = std::span(tokens).first(16);
  const auto begin = run.logits.begin();
  const std::vector<float> expected(begin, begin + 16 * run.vocab_size);
  const RunOptions in_chunks{.device = GetParam(), .expert_cache_bytes = 0, .chunks = {7, 1, 5, 1}};
  EXPECT_EQ(run_model(kFolder, some, in_chunks).logits, expected);
  const TempFolder packed;
  expect_packed(kFolder, packed.path(), {});
  EXPECT_EQ(run_model(packed.path(), some, {.device = GetParam()}).logits, expected);
}

INSTANTIATE_TEST_SUITE_P(All, Mxfp4Golden,
                         ::testing::ValuesIn(and_built_gpus({"reference", "cpu", "emulator"})),
                         [](const auto& test) { return test_name_of(test.param); });

// In memory they are GGML's blocks, which integers meet as they meet those of GGUF files.
TEST(Mxfp4, IntegersMeetThemToo) {
  auto golden = read_golden(kFolder + "/golden.safetensors");
  const std::vector<TokenId>& tokens = golden["tokens"].ints;
  const std::vector<float> exact = run_model(kFolder, tokens, {}).logits;
  for (const auto& [precision, least] :
       {std::pair(Precision::kInt8, 0.999), std::pair(Precision::kQ16, 0.999999)}) {
    const RunOutput run = run_model(kFolder, tokens, {.precision = precision});
    EXPECT_NE(run.logits, exact);
    for (int64_t i = 0; i < golden["logits"].rows(); ++i) {
      EXPECT_GE(cosine(run.row(i), golden["logits"].row(i)), least) << "position " << i;
    }
  }
}

}  // namespace
}  // namespace moeflux::testing
