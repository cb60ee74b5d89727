#include "hub/choice.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/format.h"

namespace moeflux::hub {
namespace {

std::vector<FileSet> sets_of(std::initializer_list<int> bits) {
  std::vector<FileSet> sets;
  for (const int count : bits) {
    sets.push_back({.label = formatted("Q{}_0", count),
                    .bytes = static_cast<uint64_t>(count) * 1000,
                    .bits = count});
  }
  return sets;
}

// A machine on which `fit` bits fit and `fast` bits are fast.
std::string chosen(std::initializer_list<int> bits, int fit, int fast) {
  const auto found = choose_set(sets_of(bits), [&](const FileSet& set) -> Result<SetForecast> {
    return SetForecast{set.bits <= fit, set.bits <= fast ? 20.0 : 2.0};
  });
  return found.ok() ? found->set.label : "none";
}

TEST(ChooseSet, IsTheLargestThatIsFastEnough) {
  EXPECT_EQ(chosen({2, 3, 4, 5, 6, 8, 16}, 16, 16), "Q8_0");
  EXPECT_EQ(chosen({2, 3, 4, 5, 6, 8, 16}, 16, 5), "Q5_0");
  EXPECT_EQ(chosen({2, 3, 4, 5, 6, 8, 16}, 6, 16), "Q6_0");
  EXPECT_EQ(chosen({16}, 16, 16), "Q16_0");
}

TEST(ChooseSet, KeepsFourBitsWhereTheyFitThoughSlow) {
  EXPECT_EQ(chosen({2, 3, 4, 5, 6, 8}, 16, 3), "Q4_0");
}

TEST(ChooseSet, TakesFewerBitsOnlyWhereFourDoNotFit) {
  EXPECT_EQ(chosen({1, 2, 3, 4, 5}, 2, 5), "Q2_0");
  EXPECT_EQ(chosen({2, 3, 4, 5}, 1, 5), "none");
}

}  // namespace
}  // namespace moeflux::hub
