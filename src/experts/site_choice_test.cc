#include "experts/site_choice.h"

#include <gtest/gtest.h>

#include <array>

namespace moeflux {
namespace {

/// Steps of `rows` rows that take what `seconds` says by site; how many each site took.
std::array<int, 2> run(SiteChoice& choice, int steps, std::array<double, 2> seconds,
                       int64_t rows = 1) {
  std::array<int, 2> taken{};
  for (int i = 0; i < steps; ++i) {
    const auto site = static_cast<size_t>(choice.begin_step(rows));
    ++taken[site];
    choice.end_step(seconds[site]);
  }
  return taken;
}

TEST(SiteChoice, BothAreTriedAndTheFasterOneGoesOn) {
  for (const bool helper_is_faster : {false, true}) {
    SiteChoice choice;
    const std::array<double, 2> seconds = {0.002, helper_is_faster ? 0.001 : 0.003};
    const auto tried = run(choice, 8, seconds);
    EXPECT_EQ(tried[0], 4);
    EXPECT_EQ(tried[1], 4);
    EXPECT_EQ(run(choice, 64, seconds)[helper_is_faster], 64);
  }
}

// The worse site's part in 4,096 steps, at twice the time, must cost less than 3 %.
TEST(SiteChoice, TrialsBecomeRare) {
  SiteChoice choice;
  EXPECT_LT(run(choice, 4096, {0.002, 0.001})[0], 40);
}

TEST(SiteChoice, WhatHasBecomeFasterIsFound) {
  SiteChoice choice;
  run(choice, 200, {0.002, 0.001});
  run(choice, 600, {0.001, 0.002});
  EXPECT_EQ(run(choice, 32, {0.001, 0.002})[0], 32);
}

TEST(SiteChoice, TheFirstStepAfterAChangeIsNotCounted) {
  SiteChoice choice;
  ExpertSite last = ExpertSite::kHelper;
  for (int i = 0; i < 8; ++i) {
    const ExpertSite site = choice.begin_step(1);
    const double slow = site == last ? 0.0 : 1.0;
    choice.end_step(slow + (site == ExpertSite::kHelper ? 0.001 : 0.002));
    last = site;
  }
  EXPECT_EQ(choice.begin_step(1), ExpertSite::kHelper);
}

TEST(SiteChoice, OneSlowStepDecidesNothing) {
  SiteChoice choice;
  for (int i = 0; i < 8; ++i) {
    const ExpertSite site = choice.begin_step(1);
    choice.end_step(i == 6 ? 9.0 : site == ExpertSite::kHelper ? 0.001 : 0.002);
  }
  EXPECT_EQ(choice.begin_step(1), ExpertSite::kHelper);
}

TEST(SiteChoice, StepsOfOtherSizesHaveAChoiceOfTheirOwn) {
  SiteChoice choice;
  run(choice, 16, {0.002, 0.001}, 1);
  run(choice, 16, {0.002, 0.004}, 32);
  EXPECT_EQ(choice.begin_step(1), ExpertSite::kHelper);
  EXPECT_EQ(choice.begin_step(40), ExpertSite::kDevice);
  EXPECT_EQ(choice.begin_step(int64_t{1} << 40), ExpertSite::kDevice);
}

// It has no end, so the next one takes its place.
TEST(SiteChoice, AStepThatFailedCountsForNothing) {
  SiteChoice choice;
  for (int i = 0; i < 100; ++i) choice.begin_step(1);
  const auto tried = run(choice, 8, {0.002, 0.001});
  EXPECT_EQ(tried[0], 4);
  EXPECT_EQ(tried[1], 4);
}

}  // namespace
}  // namespace moeflux
