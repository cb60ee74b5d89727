// Every family's snapshot, continued by another process.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/library/library_model.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr const char* kFolderVariable = "MOEFLUX_TEST_FAMILY_SNAPSHOT";
constexpr const char* kModelVariable = "MOEFLUX_TEST_FAMILY_MODEL";

const std::string kModels = std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/models/";

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Model open_family(const std::string& folder) {
  return take(Model::open(folder, {.context_length = 64, .threads = 1}));
}

std::vector<int32_t> tokens_between(int32_t begin, int32_t end) {
  std::vector<int32_t> tokens;
  for (int32_t i = begin; i < end; ++i) tokens.push_back(3 + 7 * i % 29);
  return tokens;
}

/// The logits after each of the text's last tokens, as bytes.
std::string continued(Sequence& sequence) {
  std::string bytes;
  std::vector<float> row(sequence.vocab_size());
  for (const int32_t token : tokens_between(31, 40)) {
    expect_ok(sequence.eval({&token, 1}, row));
    bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return bytes;
}

TEST(ModelPath, IsAFolderOrAnyGgufFile) {
  const std::string formats = std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/formats/";
  for (const char* path :
       {"gguf-qwen3_moe", "gguf-qwen3_moe/model.gguf", "gguf-split",
        "gguf-split/model-00001-of-00003.gguf", "gguf-split/model-00003-of-00003.gguf"}) {
    Model model = open_family(formats + path);
    Sequence sequence = take(model.create_sequence());
    expect_ok(sequence.eval(tokens_between(0, 3)));
  }
}

class FamilySnapshot : public ::testing::TestWithParam<std::string> {};

// The other process of the test below.
TEST(FamilySnapshotChild, DISABLED_Continues) {
  const char* folder = std::getenv(kFolderVariable);
  const char* model_folder = std::getenv(kModelVariable);
  ASSERT_TRUE(folder != nullptr && model_folder != nullptr);
  Model model = open_family(model_folder);
  Sequence loaded = take(model.create_sequence());
  expect_ok(loaded.load_file(std::string(folder) + "/state"));
  write_bytes(std::string(folder) + "/logits", continued(loaded));
}

TEST_P(FamilySnapshot, GoesOnInAnotherProcess) {
  const TempFolder folder;
  Model model = open_family(kModels + GetParam());
  Sequence sequence = take(model.create_sequence());
  expect_ok(sequence.eval(tokens_between(0, 31)));
  expect_ok(sequence.save_file(folder / "state"));
  ::setenv(kFolderVariable, folder.path().c_str(), 1);
  ::setenv(kModelVariable, (kModels + GetParam()).c_str(), 1);
  const ProgramOutput child = run_program(
      ::testing::internal::GetArgvs().front(),
      {"--gtest_also_run_disabled_tests", "--gtest_filter=FamilySnapshotChild.DISABLED_Continues"});
  ASSERT_EQ(child.status, 0) << child.out << child.err;
  Sequence fresh = take(model.create_sequence());
  expect_ok(fresh.eval(tokens_between(0, 31)));
  const std::string expected = continued(fresh);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(read_bytes(folder / "logits"), expected);
}

INSTANTIATE_TEST_SUITE_P(All, FamilySnapshot, ::testing::ValuesIn(families()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace moeflux::testing
