// No family goes without a golden, and no golden without a family.
#include "tests/support/golden_families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "model/family/family.h"
#include "tests/support/golden_file.h"

namespace moeflux::testing {
namespace {

bool has_golden(const std::string& model_type) {
  const std::filesystem::path folder = golden_folder(model_type);
  return std::ranges::all_of(
      std::vector{"config.json", "model.safetensors", "golden.safetensors"},
      [&](const char* file) { return std::filesystem::is_regular_file(folder / file); });
}

TEST(GoldenFamilies, EveryModelTypeOfTheRegistryHasAGoldenOrSharesOne) {
  ASSERT_FALSE(families().empty());
  for (const Family* family : families()) {
    for (const std::string_view type : family->model_types) {
      const auto spelling = other_spellings().find(std::string(type));
      const std::string golden =
          spelling == other_spellings().end() ? std::string(type) : spelling->second;
      EXPECT_TRUE(has_golden(golden)) << type << ": expected a golden in " << golden_folder(golden);
      const auto reader = find_family(golden);
      ASSERT_TRUE(reader.ok()) << reader.error().to_string();
      EXPECT_EQ(*reader, family) << type << " shares the golden of a family that is not its own";
    }
  }
}

TEST(GoldenFamilies, EveryGoldenIsOfAModelTypeOfTheRegistry) {
  std::vector<std::string> folders;
  for (const auto& entry :
       std::filesystem::directory_iterator(tests_directory() + "/golden/models")) {
    if (entry.is_directory()) folders.push_back(entry.path().filename().string());
  }
  std::sort(folders.begin(), folders.end());
  EXPECT_EQ(folders, golden_families());
}

// Logits alone would not say in which layer a difference begins.
TEST(GoldenFamilies, EveryGoldenHoldsWhatEachLayerLeaves) {
  for (const std::string& family : families_of_one_stream()) {
    const auto golden = read_golden(golden_folder(family) + "/golden.safetensors");
    EXPECT_TRUE(golden.contains("hidden_states")) << family;
  }
  for (const std::string& family : families_of_several_streams()) {
    const auto golden = read_golden(golden_folder(family) + "/golden.safetensors");
    EXPECT_TRUE(golden.contains("streams") && golden.contains("collapsed")) << family;
  }
}

// A case that its own name would leave out could never run.
TEST(GoldenFamilies, TheNameOfOneCaseAsksForItsFamilyAlone) {
  const std::string before = GTEST_FLAG_GET(filter);
  const auto asked_by = [](const char* filter) {
    GTEST_FLAG_SET(filter, filter);
    return asked({"olmoe", "qwen3", "qwen3_moe"});
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(asked_by("All/BatchGolden.CompanyDoesNotChangeABit/qwen3_moe_on_cpu"),
            (Names{"qwen3", "qwen3_moe"}));
  EXPECT_EQ(asked_by("All/PastGolden.ForksGoTheirOwnWays/olmoe"), Names{"olmoe"});
  EXPECT_EQ(asked_by("GoldenFamilies.EveryGoldenIsOfAModelTypeOfTheRegistry"), Names{});
  for (const char* several : {"*", "All/*/olmoe", "-All/*", "A.B/olmoe:A.B/qwen3", "A.B/olmo?"}) {
    EXPECT_EQ(asked_by(several), (Names{"olmoe", "qwen3", "qwen3_moe"})) << several;
  }
  GTEST_FLAG_SET(filter, before);
}

}  // namespace
}  // namespace moeflux::testing
