// Fused launches against launches of their own, over random programs. One seed again:
//
//   MOEFLUX_TEST_DIFFERENTIAL_SEED=123 conformance_test --gtest_filter='*Differential*'
//
// MOEFLUX_TEST_DIFFERENTIAL_SEEDS says how many of them the suite tries, 500 if it says nothing.
#include "tests/conformance/differential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "base/format.h"
#include "tests/support/soak.h"

namespace moeflux::conformance {
namespace {

constexpr uint64_t kSeedsUsual = 500;
constexpr uint64_t kShares = 8;  // of the seeds, each a test of its own

/// The same bits, or no number either way: which one it is is the machine's to choose.
bool are_alike(float a, float b) {
  return std::memcmp(&a, &b, sizeof(float)) == 0 || (std::isnan(a) && std::isnan(b));
}

/// Where memory differs: "" nowhere.
std::string difference(Device& device, const Program& program) {
  const auto expected = run_program(device, program, /*apart=*/true);
  const auto got = run_program(device, program, /*apart=*/false);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i].size() != expected[i].size()) return "a device failed";
    for (size_t j = 0; j < expected[i].size(); ++j) {
      if (are_alike(got[i][j], expected[i][j])) continue;
      return formatted("memory {} at {}: {} apart, {} as it comes", i, j, expected[i][j],
                       got[i][j]);
    }
  }
  return "";
}

/// The program without the steps that a difference needs not.
Program shortened(Device& device, Program program) {
  for (size_t i = program.steps.size(); i-- > 0;) {
    Program shorter = program;
    shorter.steps.erase(shorter.steps.begin() + static_cast<std::ptrdiff_t>(i));
    if (!difference(device, shorter).empty()) program = std::move(shorter);
  }
  return program;
}

void expect_same_memory(const NamedDevice& named, uint64_t seed) {
  const Program program = make_program(seed);
  if (difference(*named.device, program).empty()) return;
  const Program few = shortened(*named.device, program);
  std::string text = formatted("seed {} on {}, {} tokens: {}; the steps it takes:", seed,
                               named.name, program.n, difference(*named.device, few));
  for (const Step& step : few.steps) text += "\n  " + step.text;
  ADD_FAILURE() << text;
}

class Differential : public ::testing::TestWithParam<uint64_t> {};

// Fast devices run every seed, each slow one its share.
TEST_P(Differential, FusedLaunchesHaveTheBitsOfLaunchesApart) {
  const std::vector<const NamedDevice*> all = devices_with_units();
  const std::optional<uint64_t> one = testing::number_from("MOEFLUX_TEST_DIFFERENTIAL_SEED");
  const uint64_t seeds =
      testing::number_from("MOEFLUX_TEST_DIFFERENTIAL_SEEDS").value_or(kSeedsUsual);
  for (uint64_t seed = GetParam(); seed < seeds; seed += kShares) {
    if (one && GetParam() != *one % kShares) break;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_turn = seed / kShares % all.size() == i;
      if (one || !all[i]->is_slow || is_turn) expect_same_memory(*all[i], one.value_or(seed));
    }
    if (one || HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Differential, ::testing::Range(uint64_t{0}, kShares));

}  // namespace
}  // namespace moeflux::conformance
