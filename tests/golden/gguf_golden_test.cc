// Models in GGUF files of every block type and architecture, against the logits that transformers
// computed from the weights that an independent library decodes out of the same files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/format.h"
#include "checkpoint/gguf.h"
#include "load/model_source.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/packed_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr double kGgufCosineLeast = 0.9999;
// As many as the emulator takes in a second.
constexpr size_t kGgufTokensEmulated = 10;

std::string in_tree() { return tests_directory() + "/golden/formats/"; }

std::string folder_of(const std::string& name) { return in_tree() + name; }

std::string case_of(const std::string& folder) {
  std::string name = folder.substr(5);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Folders gguf-*, by name, those whose case may be asked for.
std::vector<std::string> all_cases() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(in_tree())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("gguf-") && may_be_asked(case_of(name))) names.insert(name);
  }
  return {names.begin(), names.end()};
}

struct Text {
  std::vector<TokenId> tokens;
  int64_t first_row = 0;  // of the logits that are known
  GoldenTensor logits;
};

/// One text of random tokens, or prompts with what the model wrote.
std::vector<Text> texts_of(const std::string& folder) {
  auto golden = read_golden(folder + "/golden.safetensors");
  if (golden.contains("tokens")) return {{golden["tokens"].ints, 0, golden["logits"]}};
  std::vector<Text> texts;
  for (int i = 0; golden.contains(formatted("tokens{}", i)); ++i) {
    Text text{golden[formatted("tokens{}", i)].ints,
              golden[formatted("prompt_len{}", i)].ints.at(0) - 1,
              golden[formatted("logits{}", i)]};
    text.tokens.resize(static_cast<size_t>(text.first_row + text.logits.rows()));
    texts.push_back(std::move(text));
  }
  return texts;
}

/// `most`: tokens of a text. Texts whose known logits come later are left out.
void expect_agreement(const std::string& folder, const std::string& device,
                      size_t most = ~size_t{0}) {
  const std::vector<Text> texts = texts_of(folder);
  ASSERT_FALSE(texts.empty());
  for (const Text& text : texts) {
    const auto count = static_cast<int64_t>(std::min(most, text.tokens.size()));
    if (count <= text.first_row) continue;
    const RunOutput run = run_model(
        folder, std::span(text.tokens).first(static_cast<size_t>(count)), {.device = device});
    ASSERT_FALSE(run.logits.empty());
    for (int64_t i = 0; i < std::min(text.logits.rows(), count - text.first_row); ++i) {
      EXPECT_GE(cosine(run.row(text.first_row + i), text.logits.row(i)), kGgufCosineLeast)
          << "position " << text.first_row + i;
    }
  }
}

class GgufGolden : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return folder_of(GetParam()); }
};

TEST_P(GgufGolden, TheReferenceDeviceAgrees) { expect_agreement(folder(), "reference"); }

TEST_P(GgufGolden, TheCpuAgrees) { expect_agreement(folder(), "cpu"); }

TEST_P(GgufGolden, MatrixUnitsAgree) {
  expect_agreement(folder(), "emulator with matrix units", kGgufTokensEmulated);
}

// Experts of a file begin at any multiple of 32 bytes, and an expert cache of one slot reads them
// again and again.
TEST_P(GgufGolden, StreamingThroughTheSmallestCacheChangesNoBit) {
  std::vector<TokenId> tokens = texts_of(folder()).front().tokens;
  tokens.resize(std::min<size_t>(tokens.size(), 12));
  const RunOutput whole = run_model(folder(), tokens, {.device = "reference"});
  const RunOutput streamed = run_model(
      folder(), tokens, {.device = "reference", .expert_cache_bytes = 0, .chunks = {5, 1, 3, 1}});
  ASSERT_FALSE(whole.logits.empty());
  EXPECT_EQ(whole.logits, streamed.logits);
}

TEST_P(GgufGolden, APackKeepsTheStoredBits) {
  std::vector<TokenId> tokens = texts_of(folder()).front().tokens;
  tokens.resize(std::min<size_t>(tokens.size(), 8));
  const RunOutput whole = run_model(folder(), tokens, {});
  ASSERT_FALSE(whole.logits.empty());
  const TempFolder packed;
  if (whole.expert_capacity_bytes == 0) {
    return expect_error(pack_folder(folder(), packed.path(), {}), ErrorCode::kInvalidArgument,
                        {"no routed experts to pack"});
  }
  expect_packed(folder(), packed.path(), {});
  EXPECT_EQ(run_model(packed.path(), tokens, {}).logits, whole.logits);
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGolden, ::testing::ValuesIn(all_cases()),
                         [](const auto& folder) { return case_of(folder.param); });

// The GPUs that the build has code for: none where it has none.
class GgufGpuGolden : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
  void SetUp() override {
    if (const std::string missing = missing_gpu(std::get<1>(GetParam())); !missing.empty()) {
      GTEST_SKIP() << "hardware: " << missing;
    }
  }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GgufGpuGolden);

TEST_P(GgufGpuGolden, AgreesAndNeitherChunksNorCacheChangeABit) {
  const auto& [name, device] = GetParam();
  expect_agreement(folder_of(name), device);
  std::vector<TokenId> tokens = texts_of(folder_of(name)).front().tokens;
  tokens.resize(std::min<size_t>(tokens.size(), 12));
  const RunOutput whole = run_model(folder_of(name), tokens, {.device = device});
  ASSERT_FALSE(whole.logits.empty());
  const RunOutput cut = run_model(
      folder_of(name), tokens, {.device = device, .expert_cache_bytes = 0, .chunks = {5, 1, 3, 1}});
  EXPECT_EQ(cut.logits, whole.logits);
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGpuGolden,
                         ::testing::Combine(::testing::ValuesIn(all_cases()),
                                            ::testing::ValuesIn(and_built_gpus({}))),
                         [](const auto& test) {
                           return case_of(std::get<0>(test.param)) + "_on_" +
                                  test_name_of(std::get<1>(test.param));
                         });

constexpr auto kCasesOfTheTree = std::to_array<const char*>({"gguf-deepseek_v3",
                                                             "gguf-gemma4_text",
                                                             "gguf-glm4_moe",
                                                             "gguf-iq1_m",
                                                             "gguf-iq1_s",
                                                             "gguf-iq2_s",
                                                             "gguf-iq2_xs",
                                                             "gguf-iq2_xxs",
                                                             "gguf-minimax_m2",
                                                             "gguf-mixed_types",
                                                             "gguf-mixtral",
                                                             "gguf-mxfp4-gpt_oss",
                                                             "gguf-q1_0",
                                                             "gguf-q2_0",
                                                             "gguf-q2_k",
                                                             "gguf-qwen2_moe",
                                                             "gguf-qwen3_moe",
                                                             "gguf-qwen3_next",
                                                             "gguf-split",
                                                             "gguf-tq1_0",
                                                             "gguf-tq2_0",
                                                             "gguf-afmoe",
                                                             "gguf-dots1",
                                                             "gguf-ernie4_5_moe",
                                                             "gguf-exaone_moe",
                                                             "gguf-gemma3_text",
                                                             "gguf-gemma4_text_dense",
                                                             "gguf-gemma4_text_e",
                                                             "gguf-granite",
                                                             "gguf-llama",
                                                             "gguf-ministral3",
                                                             "gguf-mistral",
                                                             "gguf-muse_glimmer_text",
                                                             "gguf-olmo2",
                                                             "gguf-olmo3",
                                                             "gguf-phi3",
                                                             "gguf-phi4",
                                                             "gguf-qwen3",
                                                             "gguf-qwen3_5_text",
                                                             "gguf-smollm3",
                                                             "gguf-hy_v3",
                                                             "gguf-hy_v4",
                                                             "gguf-mellum",
                                                             "gguf-sarvam_moe",
                                                             "gguf-inkling_text",
                                                             "gguf-kimi_k3",
                                                             "gguf-kimi_linear",
                                                             "gguf-granitemoeshared",
                                                             "gguf-granitemoehybrid",
                                                             "gguf-nemotron_h_latent",
                                                             "gguf-laguna",
                                                             "gguf-step3p5",
                                                             "gguf-solar_open",
                                                             "gguf-lfm2_moe",
                                                             "gguf-llama4",
                                                             "gguf-qwen3_vl_moe",
                                                             "gguf-deepseek_v32",
                                                             "gguf-glm_moe_dsa",
                                                             "gguf-cohere2_moe",
                                                             "gguf-minimax_m3_vl",
                                                             "gguf-bailing_hybrid",
                                                             "gguf-deepseek_v4",
                                                             "gguf-qwen4_exp",
                                                             "gguf-glm5_next",
                                                             "gguf-mistral4",
                                                             "gguf-granite_swa",
                                                             "gguf-granitemoe_swa",
                                                             "gguf-dots3_note",
                                                             "gguf-axk2",
                                                             "gguf-mimo_v2_flash"});

TEST(GgufGolden, EveryCaseOfTheTreeIsThere) {
  for (const char* name : kCasesOfTheTree) {
    EXPECT_TRUE(std::filesystem::is_directory(in_tree() + name)) << name;
  }
}

}  // namespace
}  // namespace moeflux::testing
