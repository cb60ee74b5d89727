// moeflux perplexity beside a base, as a user meets it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "base/json.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

const std::string kText =
    "Once upon a time there was a king who had three sons. The youngest set out into the world to "
    "seek his fortune, and he came to a great forest.";

ProgramOutput perplexity(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"perplexity", "-f", "-", "-c", "24"});
  return moeflux(arguments, {.standard_input = kText});
}

struct Comparison {
  double perplexity = 0.0;
  double base_perplexity = 0.0;
  double change_percent = -1.0;
  double kl_mean = -1.0;
  double kl_p99 = -1.0;
  double same_top_percent = 0.0;
};

Comparison comparison_in(const ProgramOutput& output) {
  expect_success(output);
  static const std::regex kReport(
      R"(perplexity ([0-9.]+) .*\nbase perplexity ([0-9.]+) .*\n)"
      R"(change of perplexity ([-+][0-9.]+) %\n)"
      R"(KL\(base \|\| this\) mean ([0-9.]+), p99 ([0-9.]+) nats; same top token ([0-9.]+) %\n)");
  std::smatch found;
  const bool matches = std::regex_match(output.out, found, kReport);
  EXPECT_TRUE(matches) << output.out;
  if (!matches) return {};
  const auto number = [&](size_t i) { return std::stod(found[i]); };
  return {number(1), number(2), number(3), number(4), number(5), number(6)};
}

Comparison compared(const std::vector<std::string>& arguments) {
  return comparison_in(perplexity(arguments));
}

TEST(PerplexityCompare, FindsNothingBetweenAModelAndItself) {
  const Comparison same =
      compared({"--precision", "f32", "-ctk", "f32", "-ctv", "f32", "--compare", "cpu"});
  EXPECT_EQ(same.perplexity, same.base_perplexity);
  EXPECT_EQ(same.change_percent, 0.0);
  EXPECT_EQ(same.kl_mean, 0.0);
  EXPECT_EQ(same.kl_p99, 0.0);
  EXPECT_EQ(same.same_top_percent, 100.0);
}

TEST(PerplexityCompare, MeasuresWhatRoundedActivationsCost) {
  const Comparison rounded = compared({"--precision", "int8", "--compare", "reference"});
  EXPECT_NE(rounded.perplexity, rounded.base_perplexity);
  EXPECT_NEAR(rounded.perplexity / rounded.base_perplexity, 1.0, 0.05);
  EXPECT_NEAR(rounded.change_percent, 100.0 * (rounded.perplexity / rounded.base_perplexity - 1.0),
              0.002);
  EXPECT_GT(rounded.kl_mean, 0.0);
  EXPECT_LT(rounded.kl_mean, 0.02);
  EXPECT_GE(rounded.kl_p99, rounded.kl_mean);
  EXPECT_GE(rounded.same_top_percent, 80.0);
}

TEST(PerplexityCompare, TakesAnotherModelOfTheSameVocabulary) {
  const TempFolder packed_folder;
  expect_success(moeflux({"pack", "-m", fable(), "-o", packed_folder.path()}));
  const Comparison packed = compared({"--compare", packed_folder.path()});
  EXPECT_EQ(packed.perplexity, packed.base_perplexity);
  EXPECT_EQ(packed.kl_mean, 0.0);
}

TEST(PerplexityCompare, ReportsWithoutABaseAsEver) {
  const std::string alone = perplexity({}).out;
  EXPECT_EQ(alone.rfind("perplexity ", 0), 0u);
  EXPECT_EQ(alone.find('\n'), alone.size() - 1);
  const std::string with_base = perplexity({"--compare", "cpu"}).out;
  EXPECT_EQ(with_base.substr(0, alone.size()), alone);
}

TEST(PerplexityCompare, NamesABaseThatCannotBe) {
  const ProgramOutput unknown = perplexity({"--compare", "abacus"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.err, "--compare") && contains(unknown.err, "abacus")) << unknown.err;
  const std::string other = std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/models/olmoe";
  const ProgramOutput mismatch = perplexity({"--compare", other});
  EXPECT_EQ(mismatch.status, 1);
  EXPECT_TRUE(contains(mismatch.err, "256") && contains(mismatch.err, "expected one vocabulary"))
      << mismatch.err;
}

// Another program, llama-perplexity, expects these probabilities of the first twenty tokens of
// kText in windows of ten: with the weights of the embedded model in f32 it printed 6.1553.
const std::string kSaved =
    std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/saved_logits/fable-20m.bin";
constexpr size_t kSavedTokensAt = 20;

ProgramOutput against_saved(std::vector<std::string> more, const std::string& saved = kSaved) {
  std::vector<std::string> arguments = {"perplexity", "--precision", "f32", "--kl-base", saved};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return moeflux(arguments, {.standard_input = kText});
}

std::string saved_bytes() {
  std::ifstream file(kSaved, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_refused(const ProgramOutput& output, int status,
                    const std::vector<std::string>& pieces) {
  EXPECT_EQ(output.status, status);
  EXPECT_EQ(output.err_lines().size(), 1u) << output.err;
  for (const std::string& piece : pieces) EXPECT_TRUE(contains(output.err, piece)) << output.err;
}

ProgramOutput second_halves(std::vector<std::string> more) {
  more.insert(more.begin(), {"perplexity", "--score", "second-half", "-f", "-"});
  return moeflux(more, {.standard_input = kText});
}

TEST(PerplexityKlBase, FindsAnotherProgramsNumbersOfTheSameWeights) {
  const ProgramOutput output = against_saved({});
  EXPECT_TRUE(contains(output.out, "8 tokens, second halves of 2 windows of 10")) << output.out;
  const Comparison same = comparison_in(output);
  EXPECT_NEAR(same.perplexity, 6.1553, 0.002);
  EXPECT_NEAR(same.base_perplexity, 6.1553, 0.001);  // saved in 16 bits
  EXPECT_LT(same.kl_mean, 1e-5);
  EXPECT_EQ(same.same_top_percent, 100.0);
}

TEST(PerplexityKlBase, ScoresTheTextAsScoreSecondHalfDoes) {
  const std::string beside = against_saved({}).out;
  const ProgramOutput alone = second_halves({"--precision", "f32", "-c", "10", "--chunks", "2"});
  expect_success(alone);
  EXPECT_EQ(beside.substr(0, beside.find('\n') + 1), alone.out);
  const std::string first_window = against_saved({"--chunks", "1"}).out;
  EXPECT_TRUE(contains(first_window, "4 tokens, second halves of 1 windows")) << first_window;
}

TEST(PerplexityKlBase, ATextBesidesMustHaveTheSavedTokens) {
  EXPECT_EQ(against_saved({"-f", "-"}).out, against_saved({}).out);
  std::string bytes = saved_bytes();
  bytes[kSavedTokensAt + 4 * 7] ^= 1;
  const TempFolder folder;
  write_bytes(folder / "base.bin", bytes);
  expect_refused(against_saved({"-f", "-"}, folder / "base.bin"), 1,
                 {"--kl-base", "token 7 of", "base.bin"});
  write_bytes(folder / "short.txt", "Once upon a time");
  expect_refused(against_saved({"-f", folder / "short.txt"}), 1, {"--kl-base", "there is none"});
}

// A copy of the embedded model whose tokenizer begins texts with token 0.
void write_model_with_first_token(const TempFolder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(fable())) {
    const std::string name = entry.path().filename();
    if (name == "tokenizer.json") {
      std::ifstream file(entry.path());
      auto json = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), name);
      ASSERT_TRUE(json.ok());
      (*json)["post_processor"] = *parse_json(
          R"({"type": "TemplateProcessing",
              "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                         {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [],
              "special_tokens": {"<|endoftext|>":
                {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}})",
          "post_processor");
      write_bytes(folder / name, json->dump());
    } else {
      std::filesystem::create_symlink(entry.path(), folder / name);
    }
  }
}

TEST(PerplexityKlBase, EachWindowBeginsWithTheTokenThatBeginsTexts) {
  const TempFolder folder;
  write_model_with_first_token(folder);
  std::string bytes = saved_bytes();
  for (const size_t first : {0, 10}) bytes.replace(kSavedTokensAt + 4 * first, 4, 4, '\0');
  const TempFolder bases;
  write_bytes(bases / "base.bin", bytes);
  const Comparison stated = comparison_in(against_saved({}, bases / "base.bin"));
  const Comparison replaced = comparison_in(against_saved({"-m", folder.path()}));
  EXPECT_EQ(replaced.perplexity, stated.perplexity);
  EXPECT_EQ(replaced.kl_mean, stated.kl_mean);
  EXPECT_NE(replaced.perplexity, comparison_in(against_saved({})).perplexity);
}

TEST(PerplexityKlBase, RefusesWhatCannotBeComparedInOneLine) {
  const TempFolder folder;
  const std::string bytes = saved_bytes();
  write_bytes(folder / "cut.bin", bytes.substr(0, bytes.size() - 100));
  expect_refused(against_saved({}, folder / "cut.bin"), 1, {"--kl-base", "cut.bin", "expected"});
  write_bytes(folder / "zeros.bin", bytes.substr(0, 100) + std::string(bytes.size() - 100, '\0'));
  expect_refused(against_saved({}, folder / "zeros.bin"), 1, {"zeros.bin", "add up to 8192"});
  expect_refused(against_saved({}, folder / "absent.bin"), 1, {"absent.bin"});
  expect_refused(against_saved({"-c", "12"}), 1, {"--ctx-size 12", "windows of 10"});
  expect_refused(against_saved({"--score", "all"}), 1, {"--score all", "second-half"});
  expect_refused(against_saved({"--compare", "cpu"}), 2, {"--compare", "--kl-base"});
  const std::string other = std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/models/olmoe";
  expect_refused(against_saved({"-m", other}), 1, {"--kl-base", "8192", "256"});
}

TEST(PerplexityScore, SecondHalvesNeedAWholeWindow) {
  expect_refused(second_halves({"-c", "2"}), 1, {"windows of 2", "3"});
  expect_refused(second_halves({"-c", "400"}), 1, {"windows of 400"});
}

}  // namespace
}  // namespace moeflux::testing
