#include "chat/drafts/draft_price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace moeflux {
namespace {

/// Tokens that a repetition of many tokens may go on with.
DraftPrice::Repeat repeat_of(size_t drafted) {
  static const std::vector<float> confidences(63, 0.97f);
  return {.confidences = std::span(confidences).first(drafted)};
}

TEST(DraftPrice, TheFirstStepHasNoDrafts) { EXPECT_EQ(DraftPrice().worth_repeat(repeat_of(8)), 0); }

TEST(DraftPrice, AcceptedDraftsOfCheapRowsPay) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  // Twice the rows that are known.
  for (const int64_t drafts : {7, 15, 31}) {
    EXPECT_EQ(price.worth_repeat(repeat_of(31)), drafts);
    price.note({.rows = drafts + 1, .drafted = drafts, .accepted = drafts, .seconds = 1.5});
  }
  EXPECT_EQ(price.worth_repeat(repeat_of(31)), 31);
}

/// Knows steps of up to 16 rows, of which each costs `row_seconds` beside the first.
DraftPrice price_of_rows(double row_seconds) {
  DraftPrice price;
  for (int64_t rows = 1; rows <= 16; rows *= 2) {
    price.note({.rows = rows,
                .accepted = rows - 1,
                .seconds = 1.0 + row_seconds * static_cast<double>(rows - 1)});
  }
  return price;
}

TEST(DraftPrice, DraftsEndWhereATokenIsUnlikely) {
  DraftPrice price = price_of_rows(0.3);
  std::vector<float> confidences(15, 0.99f);
  EXPECT_EQ(price.worth_repeat({.confidences = confidences}), 15);
  confidences[4] = 0.1f;
  EXPECT_EQ(price.worth_repeat({.confidences = confidences}), 4);
  confidences[0] = 0.2f;
  EXPECT_EQ(price.worth_repeat({.confidences = confidences}), 0);
}

TEST(DraftPrice, RowsBetweenThoseThatAreKnownCostAShare) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  price.note({.rows = 16, .drafted = 15, .accepted = 15, .seconds = 8.5});
  // A row costs half a step: a token that is likely in three of four cases pays, in two does not.
  const std::vector<float> likely = {0.75f};
  EXPECT_EQ(price.worth_repeat({.confidences = likely}), 1);
  const std::vector<float> unlikely = {0.5f};
  EXPECT_EQ(price.worth_repeat({.confidences = unlikely}), 0);
}

// The optimum of a plain search over the expected tokens and seconds.
TEST(DraftPrice, TheLengthGivesTheMostTokensASecond) {
  for (const double row_seconds : {0.05, 0.2, 0.5}) {
    for (const int64_t lost : {0, 3}) {
      for (const bool is_redone : {false, true}) {
        DraftPrice price = price_of_rows(row_seconds);
        const auto cost = [&](int64_t rows) {
          return 1.0 + row_seconds * static_cast<double>(rows - 1);
        };
        const std::vector<float> confidences(12, 0.9f);
        int64_t best = 0;
        double best_rate = 1.05 / cost(lost + 1);
        for (int64_t drafts = 1; drafts <= 12; ++drafts) {
          double tokens = 0.0;
          double again = 0.0;
          for (int64_t right = 0; right <= drafts; ++right) {
            const double all = std::pow(0.9, static_cast<double>(right));
            const double share = right == drafts ? all : 0.1 * all;
            tokens += share * static_cast<double>(right + 1);
            if (right < drafts) again += share * static_cast<double>(lost + right + 1);
          }
          const double seconds = cost(lost + 1 + drafts);
          const double each = (seconds - 1.0) / static_cast<double>(lost + drafts);
          const double rate = tokens / (seconds + (is_redone ? again * each : 0.0));
          if (rate <= best_rate) continue;
          best_rate = rate;
          best = drafts;
        }
        EXPECT_EQ(price.worth_repeat(
                      {.confidences = confidences, .lost_rows = lost, .is_redone = is_redone}),
                  best)
            << row_seconds << " " << lost << " " << is_redone;
      }
    }
  }
}

// However much drafts have earned before.
TEST(DraftPrice, ATextThatChangesLosesFewSteps) {
  DraftPrice price = price_of_rows(0.1);
  for (int i = 0; i < 1000; ++i) {
    price.note({.rows = 16, .drafted = 15, .accepted = 15, .seconds = 2.5});
  }
  double lost = 0.0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t drafts = price.worth_repeat(repeat_of(15));
    const double seconds = drafts == 0 ? 1.0 : 20.0;
    price.note({.rows = drafts + 1, .drafted = drafts, .seconds = seconds});
    lost += seconds - 1.0;
  }
  EXPECT_GT(lost, 0.0);
  EXPECT_LT(lost, 32.0 + 0.02 * 4000.0 + 2.0 * 20.0);
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
  EXPECT_EQ(price.worth_repeat(repeat_of(15)), 0);
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
    return price.worth_repeat(repeat_of(7));
  };
  EXPECT_GT(worth_with_mends_of(3.0), 0);
  EXPECT_EQ(worth_with_mends_of(5.0), 0);
}

TEST(DraftPrice, WrongDraftsEndThemAndAreTriedAgainLater) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  int tried = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t drafts = price.worth_repeat(repeat_of(15));
    if (drafts > 0) ++tried;
    price.note(
        {.rows = drafts + 1, .drafted = drafts, .accepted = 0, .seconds = drafts == 0 ? 1.0 : 3.0});
  }
  EXPECT_GT(tried, 1);
  EXPECT_LT(tried, 20);
}

// As a GPU that has a part of the experts: a step of eight rows reads those of all of them.
TEST(DraftPrice, WhatIsTriedLosesAFiftiethOfTheText) {
  for (const double cost : {4.0, 12.0, 40.0}) {
    DraftPrice price;
    double seconds = 0.0;
    double plain = 0.0;
    for (int i = 0; i < 4000; ++i) {
      const int64_t drafts = i == 0 ? 0 : price.worth_repeat(repeat_of(63));
      const double step = drafts == 0 ? 1.0 : cost * static_cast<double>(drafts + 1) / 4.0;
      price.note({.rows = drafts + 1, .drafted = drafts, .accepted = drafts, .seconds = step});
      seconds += step;
      plain += static_cast<double>(drafts + 1);
    }
    // And one trial more.
    EXPECT_LE(seconds, 1.02 * plain + 2.0 * cost) << cost;
  }
}

// --- A source that takes time ---

/// Steps of a text whose single ones take a second and a row of more a tenth; the source takes
/// `proposing` seconds for each of its tokens, of which so many are accepted. The seconds for a
/// token.
double seconds_of_a_token(double proposing, int64_t accepted) {
  DraftPrice price;
  double seconds = 0.0;
  int64_t tokens = 0;
  for (int i = 0; i < 2000; ++i) {
    const int64_t drafts = price.worth_asking(16);
    const int64_t right = std::min(drafts, accepted);
    const DraftPrice::Step step = {.rows = drafts + 1,
                                   .drafted = drafts,
                                   .accepted = right,
                                   .seconds = 1.0 + 0.1 * static_cast<double>(drafts),
                                   .origin = DraftOrigin::kOther,
                                   .drafting_seconds = proposing * static_cast<double>(drafts),
                                   .proposed = drafts};
    price.note(step);
    seconds += step.seconds + step.drafting_seconds;
    tokens += 1 + right;
  }
  return seconds / static_cast<double>(tokens);
}

TEST(DraftPrice, ASourcePaysAsLongAsItsTimeIsEarned) {
  EXPECT_LT(seconds_of_a_token(0.01, 16), 0.4);
  EXPECT_LT(seconds_of_a_token(0.2, 3), 0.8);
  EXPECT_LE(seconds_of_a_token(0.9, 16), 1.02);  // nearly as slow as the model
  EXPECT_LE(seconds_of_a_token(0.2, 0), 1.02);   // never right
}

TEST(DraftPrice, OneOriginDoesNotSpoilTheOther) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  for (int i = 0; i < 20; ++i) {
    price.note({.rows = 8,
                .drafted = 7,
                .seconds = 2.0,
                .origin = DraftOrigin::kOther,
                .drafting_seconds = 2.0,
                .proposed = 7});
  }
  EXPECT_EQ(price.worth_asking(7), 0);
  EXPECT_GT(price.worth_repeat(repeat_of(7)), 0);
}

TEST(DraftPrice, UnlikelyTokensAreNotWorthTheirRows) {
  DraftPrice price;
  price.note({.rows = 1, .seconds = 1.0});
  price.note({.rows = 2, .seconds = 1.2});
  price.note({.rows = 4, .seconds = 1.6});
  EXPECT_EQ(price.worth_rows(std::vector<float>{0.99f, 0.95f, 0.98f}), 3);
  EXPECT_EQ(price.worth_rows(std::vector<float>{0.99f, 0.1f, 0.98f}), 1);
  EXPECT_EQ(price.worth_rows(std::vector<float>{0.01f}), 0);
  // A source that says too little of itself is soon believed more.
  for (int i = 0; i < 60; ++i) {
    price.note({.rows = 2,
                .drafted = 1,
                .accepted = 1,
                .seconds = 1.2,
                .origin = DraftOrigin::kOther,
                .confidences = std::vector<float>{0.01f}});
  }
  EXPECT_EQ(price.worth_rows(std::vector<float>{0.01f}), 1);
}

}  // namespace
}  // namespace moeflux
