// Every family packed: not a bit of its logits may change, whatever order the experts lie in and
// whatever the checkpoint called them.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
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

/// The copy takes groups of 32 for rows of 32 numbers, the packer one size for all.
bool has_rows_of_32(const std::string& family) {
  const auto config = parse_json(read_bytes(golden_folder(family) + "/config.json"), family);
  EXPECT_TRUE(config.ok());
  if (!config.ok()) return false;
  const std::string text = config->dump();
  return text.find("intermediate_size\":32,") != std::string::npos ||
         text.find("moe_latent_size\":32,") != std::string::npos ||
         text.find("hc_lowrank\":32,") != std::string::npos ||
         text.find("linear_head_dim\":32,") != std::string::npos;  // through which decays go
}

std::vector<std::string> families_to_quantise() {
  std::vector<std::string> names = golden_families();
  std::erase(names, "gemma4_text");  // its embedding is F32, as are its scales; the copy has BF16
  std::erase_if(names, has_rows_of_32);
  // The copy leaves their stacks of experts plain, gate and up in one tensor.
  std::erase_if(names, [](const std::string& name) { return name.starts_with("granitemoe"); });
  return names;
}

class QuantisingPack : public ::testing::TestWithParam<std::string> {};

// The offline conversion renames, stacks and splits; the packer keeps the layout. The numbers must
// come out the same.
TEST_P(QuantisingPack, EqualsQuantisingBefore) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(),
                       {.split_kv_b = false});
  const TempFolder packed;
  expect_packed(golden_folder(GetParam()), packed.path(), {.bits = 4, .group_size = 64});
  const std::vector<TokenId> tokens = tokens_of(GetParam());
  const RunOutput expected = run_model(quantized.path(), tokens, {.device = "reference"});
  const RunOutput run = run_model(packed.path(), tokens, {.device = "reference"});
  ASSERT_FALSE(expected.logits.empty());
  EXPECT_EQ(run.logits, expected.logits);
}

INSTANTIATE_TEST_SUITE_P(All, PackedGolden, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(All, QuantisingPack, ::testing::ValuesIn(families_to_quantise()),
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
