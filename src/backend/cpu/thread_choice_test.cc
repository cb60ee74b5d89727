#include "backend/cpu/thread_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace moeflux::cpu {
namespace {

TEST(ThreadChoice, TriesDoublesOfEightAndAllCores) {
  EXPECT_EQ(thread_candidates(1), (std::vector<int>{1}));
  EXPECT_EQ(thread_candidates(8), (std::vector<int>{8}));
  EXPECT_EQ(thread_candidates(12), (std::vector<int>{8, 12}));
  EXPECT_EQ(thread_candidates(64), (std::vector<int>{8, 16, 32, 64}));
  EXPECT_EQ(thread_candidates(96), (std::vector<int>{8, 16, 32, 64, 96}));
}

int chosen_of(std::map<int, double> seconds) {
  return choose_threads(seconds.rbegin()->first, [&](int threads) { return seconds.at(threads); });
}

TEST(ThreadChoice, TakesTheFastest) {
  EXPECT_EQ(chosen_of({{8, 4.0}, {16, 2.0}, {32, 1.5}, {64, 3.0}}), 32);
  EXPECT_EQ(chosen_of({{8, 4.0}, {16, 2.0}, {32, 1.0}, {64, 0.5}}), 64);
  EXPECT_EQ(chosen_of({{8, 1.0}, {16, 2.0}, {32, 3.0}, {64, 4.0}}), 8);
}

TEST(ThreadChoice, TakesTheLargerOfTwoThatAreAsFast) {
  EXPECT_EQ(chosen_of({{8, 4.0}, {16, 2.0}, {32, 1.99}, {64, 2.02}}), 64);
  EXPECT_EQ(chosen_of({{8, 4.0}, {16, 2.0}, {32, 1.99}, {64, 2.04}}), 32);
}

TEST(ThreadChoice, MeasuresNothingUpToEightCores) {
  int calls = 0;
  EXPECT_EQ(choose_threads(8, [&](int) { return ++calls; }), 8);
  EXPECT_EQ(calls, 0);
}

TEST(ThreadChoice, MeasuredIsOneOfTheCandidates) {
  for (const int cores : {2, 9}) {
    const std::vector<int> candidates = thread_candidates(cores);
    const int chosen = measured_threads(cores, {});
    EXPECT_TRUE(std::count(candidates.begin(), candidates.end(), chosen) == 1) << chosen;
  }
}

}  // namespace
}  // namespace moeflux::cpu
