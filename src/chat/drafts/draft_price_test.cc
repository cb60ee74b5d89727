#include "chat/drafts/draft_price.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(DraftPrice, TheFirstStepHasNoDrafts) { EXPECT_EQ(DraftPrice().worth(8), 0); }

TEST(DraftPrice, AcceptedDraftsOfCheapRowsPay) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  // Twice the rows that are known.
  for (const int64_t drafts : {7, 15, 31}) {
    EXPECT_EQ(price.worth(31), drafts);
    price.note({.rows = drafts + 1, .drafted = drafts, .accepted = drafts, .seconds = 1.5});
  }
  EXPECT_EQ(price.worth(31), 31);
  EXPECT_GT(price.gain(31), 5.0);
}

TEST(DraftCounts, GainIsOfStepsWhoseTokensHaveAKnownPrice) {
  EXPECT_EQ(DraftCounts().gain(), 1.0);
  const DraftCounts before = {
      .drafts = 1, .drafted = 8, .accepted = 2, .seconds = 1.0, .plain_seconds = 1.5};
  DraftCounts all = before;
  all += {.drafts = 1, .drafted = 4, .accepted = 4, .seconds = 1.0, .plain_seconds = 2.5};
  EXPECT_EQ(all.drafted, 12);
  EXPECT_EQ(all.gain(), 2.0);
  EXPECT_EQ((all - before).accepted, 4);
  EXPECT_EQ((all - before).gain(), 2.5);
}

TEST(DraftPrice, RowsThatCostAsMuchAsStepsDoNotPay) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  for (const int64_t drafts : {1, 3, 7, 15}) {
    const double seconds = static_cast<double>(drafts + 1);
    price.note({.rows = drafts + 1, .drafted = drafts, .accepted = drafts, .seconds = seconds});
  }
  EXPECT_EQ(price.worth(15), 0);
}

// Where states have a fixed size, accepted tokens are evaluated again behind a wrong draft.
TEST(DraftPrice, StepsThatMendStatesCount) {
  const auto worth_with_mends_of = [](double seconds) {
    DraftPrice price;
    price.note({.rows = 1, .seconds = 1.0});
    for (int i = 0; i < 8; ++i) {
      price.note({.rows = 8, .drafted = 7, .accepted = 6, .seconds = 4.0});
      price.note({.rows = 8, .seconds = seconds});
    }
    return price.worth(7);
  };
  EXPECT_GT(worth_with_mends_of(3.0), 0);
  EXPECT_EQ(worth_with_mends_of(5.0), 0);
}

TEST(DraftPrice, WrongDraftsEndThemAndAreTriedAgainLater) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  int tried = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t drafts = price.worth(15);
    if (drafts > 0) ++tried;
    price.note(
        {.rows = drafts + 1, .drafted = drafts, .accepted = 0, .seconds = drafts == 0 ? 1.0 : 3.0});
  }
  EXPECT_GT(tried, 1);
  EXPECT_LT(tried, 20);
}

// As a GPU that has a part of the experts: a step of eight rows reads those of all of them.
TEST(DraftPrice, WhatIsTriedLosesAHundredthOfTheText) {
  for (const double cost : {4.0, 12.0, 40.0}) {
    DraftPrice price;
    double seconds = 0.0;
    double plain = 0.0;
    for (int i = 0; i < 4000; ++i) {
      const int64_t drafts = i == 0 ? 0 : price.worth(63);
      const double step = drafts == 0 ? 1.0 : cost * static_cast<double>(drafts + 1) / 4.0;
      price.note({.rows = drafts + 1, .drafted = drafts, .accepted = drafts, .seconds = step});
      seconds += step;
      plain += static_cast<double>(drafts + 1);
    }
    // And one trial more.
    EXPECT_LE(seconds, 1.01 * plain + 2.0 * cost) << cost;
  }
}

}  // namespace
}  // namespace moeflux
