#include "experts/drive/lookahead.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace moeflux {
namespace {

constexpr int32_t kTopK = 4;
constexpr int32_t kLayers = 3;
constexpr DriveLoad kHalfIdle{.utilisation = 0.5, .spare_reads = 2.0, .read_seconds = 1e-3};
constexpr DriveLoad kBusy{.utilisation = 1.0, .spare_reads = 0.0, .read_seconds = 1e-3};

/// Tokens whose guesses of each rank come true with a given probability.
class Stream {
 public:
  explicit Stream(LookaheadMode mode, double cost_seconds = 1e-5)
      : lookahead_({.mode = mode, .num_layers = kLayers, .top_k = kTopK}), cost_(cost_seconds) {}

  /// `right[rank]`: how likely. Returns the guesses issued by `tokens` tokens.
  size_t run(int tokens, const std::vector<double>& right, const DriveLoad& load) {
    size_t issued = 0;
    for (int t = 0; t < tokens; ++t) {
      for (int32_t layer = 0; layer < kLayers; ++layer) issued += visit(layer, right, load);
    }
    return issued;
  }
  Lookahead& lookahead() { return lookahead_; }
  int wanted() const { return wanted_; }

 private:
  size_t visit(int32_t layer, const std::vector<double>& right, const DriveLoad& load) {
    if (!lookahead_.wants(LayerId{layer})) return 0;
    ++wanted_;
    lookahead_.note_cost(cost_);
    std::vector<ExpertGuess> absent;
    std::vector<int32_t> chosen;
    for (int32_t rank = 0; rank < static_cast<int32_t>(right.size()); ++rank) {
      absent.push_back({ExpertId{rank}, rank});
      const double draw = static_cast<double>(random_() >> 11) * 0x1p-53;
      if (draw < right[static_cast<size_t>(rank)]) chosen.push_back(rank);
    }
    const size_t issued = lookahead_.choose(LayerId{layer}, absent, load).size();
    lookahead_.settle(LayerId{layer}, chosen);
    return issued;
  }

  Lookahead lookahead_;
  double cost_;
  int wanted_ = 0;
  std::mt19937_64 random_{7};
};

TEST(BreakEven, IsWhatRightGuessesSaveAgainstWhatWrongOnesCost) {
  EXPECT_DOUBLE_EQ(break_even_precision({.utilisation = 0.9, .spare_reads = 0.25}), 0.9 / 1.15);
  EXPECT_DOUBLE_EQ(break_even_precision({.utilisation = 0.5, .spare_reads = 7}), 0.5 / 1.5);
  EXPECT_DOUBLE_EQ(break_even_precision({.utilisation = 0.0, .spare_reads = 1}), 0.0);
  EXPECT_DOUBLE_EQ(break_even_precision(kBusy), 1.0);
  EXPECT_DOUBLE_EQ(break_even_precision({.utilisation = 0.0, .spare_reads = 0.0}), 1.0);
}

TEST(Lookahead, LearnsEachRanksPrecisionAndIssuesTheOnesThatPay) {
  Stream stream(LookaheadMode::kAuto);
  stream.run(400, {0.9, 0.8, 0.1, 0.05}, kHalfIdle);  // pays from a third on
  EXPECT_NEAR(stream.lookahead().precision(LayerId{1}, 0), 0.9, 0.1);
  EXPECT_NEAR(stream.lookahead().precision(LayerId{1}, 2), 0.1, 0.1);
  EXPECT_TRUE(stream.lookahead().is_on());
  EXPECT_EQ(stream.run(10, {0.9, 0.8, 0.1, 0.05}, kHalfIdle), 10u * kLayers * 2);
}

TEST(Lookahead, IssuesNoMoreThanTheIdleTimeHolds) {
  Stream stream(LookaheadMode::kAuto);
  const DriveLoad one{.utilisation = 0.2, .spare_reads = 1.4, .read_seconds = 1e-3};
  stream.run(200, {0.9, 0.9, 0.9}, one);
  EXPECT_EQ(stream.run(10, {0.9, 0.9, 0.9}, one), 10u * kLayers);
}

TEST(Lookahead, IssuesNothingBeforeItHasLearned) {
  Lookahead lookahead({.mode = LookaheadMode::kAuto, .num_layers = kLayers, .top_k = kTopK});
  ASSERT_TRUE(lookahead.wants(LayerId{1}));
  const std::array<ExpertGuess, 2> absent = {{{ExpertId{3}, 0}, {ExpertId{5}, 1}}};
  EXPECT_TRUE(lookahead.choose(LayerId{1}, absent, kHalfIdle).empty());
}

TEST(Lookahead, TurnsOffWhenGuessesStopComingTrueAndOnAgainWhenTheyDo) {
  Stream stream(LookaheadMode::kAuto);
  stream.run(200, {0.9, 0.9}, kHalfIdle);
  ASSERT_TRUE(stream.lookahead().is_on());
  stream.run(1000, {0.02, 0.02}, kHalfIdle);
  EXPECT_FALSE(stream.lookahead().is_on());
  EXPECT_EQ(stream.run(100, {0.02, 0.02}, kHalfIdle), 0u);
  stream.run(3000, {0.9, 0.9}, kHalfIdle);
  EXPECT_TRUE(stream.lookahead().is_on());
}

TEST(Lookahead, TurnsOffOnABusyDriveHoweverGoodTheGuesses) {
  Stream stream(LookaheadMode::kAuto);
  stream.run(200, {0.95, 0.95}, kHalfIdle);
  ASSERT_TRUE(stream.lookahead().is_on());
  stream.run(500, {0.95, 0.95}, kBusy);
  EXPECT_FALSE(stream.lookahead().is_on());
}

TEST(Lookahead, TurnsOffWhenTheRouterCostsMoreThanTheReadsItSaves) {
  Stream stream(LookaheadMode::kAuto, 5e-3);  // five reads
  stream.run(500, {0.95, 0.95}, kHalfIdle);
  EXPECT_FALSE(stream.lookahead().is_on());
}

TEST(Lookahead, WhileOffOneTokenInSixteenIsLookedAt) {
  Stream stream(LookaheadMode::kAuto);
  stream.run(64, {0.0}, kBusy);
  const int before = stream.wanted();
  stream.run(160, {0.0}, kBusy);
  EXPECT_EQ(stream.wanted() - before, 10 * kLayers);
}

TEST(Lookahead, WithEverythingCachedItIsOff) {
  Stream stream(LookaheadMode::kAuto);
  stream.run(100, {}, kHalfIdle);
  EXPECT_FALSE(stream.lookahead().is_on());
}

TEST(Lookahead, OnGuessesAlwaysAndOffNever) {
  Stream on(LookaheadMode::kOn);
  EXPECT_EQ(on.run(5, {0.0, 0.0, 0.0}, kBusy), 5u * kLayers * 3);
  Stream off(LookaheadMode::kOff);
  EXPECT_EQ(off.run(5, {1.0}, kHalfIdle), 0u);
  EXPECT_EQ(off.wanted(), 0);
}

TEST(Lookahead, LearnsOnlyFromTheLayerItLookedAt) {
  Lookahead lookahead({.mode = LookaheadMode::kOn, .num_layers = kLayers, .top_k = kTopK});
  const ExpertGuess guess{ExpertId{3}, 0};
  const double before = lookahead.precision(LayerId{1}, 0);
  (void)lookahead.choose(LayerId{1}, {&guess, 1}, kHalfIdle);
  const std::vector<int32_t> chosen = {3};
  lookahead.settle(LayerId{2}, chosen);
  EXPECT_EQ(lookahead.precision(LayerId{1}, 0), before);
  lookahead.settle(LayerId{1}, chosen);
  const double after = lookahead.precision(LayerId{1}, 0);
  EXPECT_GT(after, before);
  lookahead.settle(LayerId{1}, chosen);  // the same guess does not come true twice
  EXPECT_EQ(lookahead.precision(LayerId{1}, 0), after);
}

}  // namespace
}  // namespace moeflux
