// Against sums done by hand.
#include "sampling/text_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace moeflux {
namespace {

// Logits of these probabilities, moved by any number.
std::vector<float> logits_of(const std::vector<double>& shares, double moved = 0.0) {
  std::vector<float> logits;
  for (const double share : shares) logits.push_back(static_cast<float>(std::log(share) + moved));
  return logits;
}

TEST(TextScore, SurpriseIsTheLogarithmOfTheShare) {
  EXPECT_NEAR(surprise(logits_of({0.5, 0.25, 0.25}, 3.0), 1), std::log(4.0), 1e-6);
  EXPECT_NEAR(surprise(std::vector<float>{1000.0f, 0.0f}, 0), 0.0, 1e-12);
  EXPECT_NEAR(surprise(std::vector<float>{1000.0f, 0.0f}, 1), 1000.0, 1e-9);
}

TEST(TextScore, PerplexityIsThatOfTheMean) {
  TextScore score;
  score.add(std::log(2.0));
  score.add(std::log(8.0));
  EXPECT_EQ(score.tokens(), 2);
  EXPECT_NEAR(score.mean(), std::log(4.0), 1e-12);
  EXPECT_NEAR(score.perplexity(), 4.0, 1e-12);
  // The deviation of the two is log 2, that of their mean less by the root of two.
  EXPECT_NEAR(score.perplexity_error(), 4.0 * std::log(2.0) / std::sqrt(2.0), 1e-12);
}

TEST(Divergence, IsZeroOfEqualDistributionsOnly) {
  const std::vector<double> shares = {0.5, 0.3, 0.2};
  EXPECT_NEAR(divergence(logits_of(shares), logits_of(shares, 40.0)), 0.0, 1e-6);
  EXPECT_GT(divergence(logits_of(shares), logits_of({0.5, 0.2, 0.3})), 0.01);
}

TEST(Divergence, WeighsByTheBase) {
  const std::vector<float> base = logits_of({0.75, 0.25});
  const std::vector<float> other = logits_of({0.5, 0.5});
  EXPECT_NEAR(divergence(base, other), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-6);
  EXPECT_NEAR(divergence(other, base), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(2.0), 1e-6);
}

TEST(Divergence, LeavesOutWhatIsTooSmallToBeKnown) {
  const std::vector<float> base = logits_of({0.9, 0.0999, 0.0001});
  const std::vector<float> other = logits_of({0.9, 0.0991, 0.0009});
  EXPECT_NEAR(divergence(base, other, std::log(0.001)), 0.0999 * std::log(0.0999 / 0.0991), 1e-6);
  EXPECT_LT(divergence(base, other), divergence(base, other, std::log(0.001)));
}

TEST(Divergence, IsInfiniteWhereTheOtherRulesOutWhatTheBaseAllows) {
  const std::vector<float> both = {0.0f, 0.0f};
  const std::vector<float> first = {0.0f, -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(divergence(both, first), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(divergence(first, both), std::log(2.0), 1e-12);
  EXPECT_EQ(divergence(both, std::vector<float>{0.0f, std::nanf("")}),
            std::numeric_limits<double>::infinity());
}

TEST(DivergenceScore, HasMeanQuantilesAndTheShareOfEqualTops) {
  DivergenceScore score;
  const std::vector<float> base = logits_of({0.75, 0.25});
  const std::vector<float> other = logits_of({0.25, 0.75});
  for (int i = 0; i < 98; ++i) score.add(base, base);
  for (int i = 0; i < 2; ++i) score.add(base, other);
  const double apart = 0.5 * std::log(3.0);
  EXPECT_EQ(score.tokens(), 100);
  EXPECT_NEAR(score.mean(), 0.02 * apart, 1e-6);
  EXPECT_NEAR(score.quantile(0.98), 0.0, 1e-6);
  EXPECT_NEAR(score.quantile(0.99), apart, 1e-6);
  EXPECT_NEAR(score.quantile(1.0), apart, 1e-6);
  EXPECT_NEAR(score.same_top_share(), 0.98, 1e-12);
}

}  // namespace
}  // namespace moeflux
