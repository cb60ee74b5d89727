// moeflux perplexity --compare, as a user meets it.
#include <gtest/gtest.h>

#include <regex>
#include <string>

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

Comparison compared(const std::vector<std::string>& arguments) {
  const ProgramOutput output = perplexity(arguments);
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

}  // namespace
}  // namespace moeflux::testing
