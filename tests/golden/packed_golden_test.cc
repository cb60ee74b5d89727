// Every family packed: not a bit of its logits may change, whatever order the experts lie in and
// whatever the checkpoint called them.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "convert/quantize/model_quantizer.h"
#include "quant/format.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/packed_copy.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

std::vector<TokenId> tokens_of(const std::string& family) {
  return read_golden(golden_folder(family) + "/golden.safetensors")["tokens"].ints;
}

void expect_same_logits(const std::string& packed, const std::string& original,
                        const std::vector<TokenId>& tokens) {
  ASSERT_FALSE(tokens.empty());
  for (const std::string device : {"reference", "tiling reference", "cpu"}) {
    const RunOutput expected = run_model(original, tokens, {.device = device});
    ASSERT_FALSE(expected.logits.empty());
    for (const uint64_t cache : {uint64_t{0}, uint64_t{1} << 30}) {
      const RunOutput run =
          run_model(packed, tokens, {.device = device, .expert_cache_bytes = cache});
      EXPECT_EQ(run.logits, expected.logits) << device << ", cache " << cache;
    }
  }
}

class PackedGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(PackedGolden, QuantisedLogitsAreTheSameBits) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  for (const WeightOrder order : {WeightOrder::kTiled, WeightOrder::kRowMajor}) {
    const TempFolder packed;
    expect_packed(quantized.path(), packed.path(), {.order = order});
    expect_same_logits(packed.path(), quantized.path(), tokens_of(GetParam()));
  }
}

TEST_P(PackedGolden, PlainLogitsAreTheSameBits) {
  const TempFolder packed;
  expect_packed(golden_folder(GetParam()), packed.path(), {});
  expect_same_logits(packed.path(), golden_folder(GetParam()), tokens_of(GetParam()));
}

class QuantizedThenPacked : public ::testing::TestWithParam<std::string> {};

// The two commands that a refused `pack --bits` names, one after the other.
TEST_P(QuantizedThenPacked, LogitsAreTheSameBits) {
  const auto host = make_test_device({.threads = 1});
  const TempFolder quantized;
  const TempFolder packed;
  auto source = open_pack_source(golden_folder(GetParam()));
  ASSERT_TRUE(source.ok());
  const auto quantizer =
      ModelQuantizer::create(std::move(source).value(), *host, {.type = {&affine_format, 4, 32}});
  ASSERT_TRUE(quantizer.ok()) << quantizer.error().to_string();
  const Status written = (*quantizer)->write({.directory = quantized.path(), .threads = 1});
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  expect_packed(quantized.path(), packed.path(), {});
  const std::vector<TokenId> tokens = tokens_of(GetParam());
  const RunOutput expected = run_model(quantized.path(), tokens, {.device = "reference"});
  ASSERT_FALSE(expected.logits.empty());
  EXPECT_EQ(run_model(packed.path(), tokens, {.device = "reference"}).logits, expected.logits);
}

INSTANTIATE_TEST_SUITE_P(All, PackedGolden,
                         ::testing::ValuesIn(moe_families(asked(golden_families()))),
                         [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(All, QuantizedThenPacked,
                         ::testing::ValuesIn(moe_families(asked(golden_families()))),
                         [](const auto& test) { return test.param; });

TEST(PackedFable, LogitsAreTheSameBits) {
  const std::string fable = tests_directory() + "/../models/fable-20m";
  const TempFolder packed;
  expect_packed(fable, packed.path(), {});
  expect_same_logits(packed.path(), fable, {430, 1, 77, 8191, 0, 12, 300, 4096, 5, 5, 31, 7});
}

TEST(PackedFormats, EveryWidthKeepsItsNumbers) {
  const std::string family = "qwen3_moe";
  const std::vector<TokenId> tokens = tokens_of(family);
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const int bits : {2, 3, 5, 6, 8}) {
      SCOPED_TRACE(bits);
      const TempFolder quantized;
      const TempFolder twin;
      const TempFolder packed;
      write_quantized_copy(golden_folder(family), quantized.path(), twin.path(),
                           {.bits = bits, .scale_dtype = dtype});
      expect_packed(quantized.path(), packed.path(), {});
      const RunOutput expected = run_model(quantized.path(), tokens, {.device = "reference"});
      EXPECT_EQ(run_model(packed.path(), tokens, {.device = "reference"}).logits, expected.logits);
    }
  }
}

}  // namespace
}  // namespace moeflux::testing
