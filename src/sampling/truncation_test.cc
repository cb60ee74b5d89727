// The samplers of truncation.h and mirostat.h by hand; tests/golden has them over many rows.
#include "sampling/truncation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "sampling/mirostat.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
constexpr float kExcluded = -std::numeric_limits<float>::infinity();

Candidates with(const std::vector<double>& probabilities) {
  Candidates candidates;
  for (const double p : probabilities) {
    const auto id = static_cast<TokenId>(candidates.list.size());
    candidates.list.push_back({static_cast<float>(std::log(p)), id});
  }
  return candidates;
}

Ids ids(const Candidates& candidates) {
  Ids ids;
  for (const TokenLogit& c : candidates.list) ids.push_back(c.id);
  return ids;
}

TEST(Typical, MayLeaveTheLikeliestOut) {
  // Entropy 1.23 nats; surprises 0.69, 1.61, 1.61, 2.30.
  Candidates candidates = with({0.5, 0.2, 0.2, 0.1});
  keep_typical(candidates, 0.3);
  EXPECT_EQ(ids(candidates), (Ids{1, 2}));
}

TEST(Typical, NeedsMoreThanP) {
  Candidates candidates = with({0.25, 0.25, 0.25, 0.25});
  keep_typical(candidates, 0.5);
  EXPECT_EQ(ids(candidates), (Ids{0, 1, 2}));
}

TEST(TopNSigma, LooksAtFiniteLogitsWhateverTheTemperature) {
  Candidates candidates;
  candidates.list = {{3.0f, 0}, {1.0f, 1}, {kExcluded, 2}, {2.5f, 3}, {1.0f, 4}};
  candidates.temperature = 7.0;
  keep_within_sigmas(candidates, 1.0);  // the deviation is 0.89
  EXPECT_EQ(ids(candidates), (Ids{0, 3}));
}

TEST(Xtc, LeavesTheLastOfTheTopChoices) {
  Candidates candidates = with({0.1, 0.4, 0.3, 0.2});
  drop_top_choices(candidates, 0.15);
  EXPECT_EQ(ids(candidates), (Ids{0, 3}));
  Candidates ties = with({0.3, 0.3, 0.3, 0.1});
  drop_top_choices(ties, 0.2);
  EXPECT_EQ(ids(ties), (Ids{2, 3}));
  Candidates one = with({0.9, 0.1});
  drop_top_choices(one, 0.2);
  EXPECT_EQ(ids(one), (Ids{0, 1}));
}

TEST(DynamicTemperature, GoesFromCertaintyToAllAlike) {
  const DynamicTemperature options{.temperature = 1.0, .range = 0.5, .exponent = 2.0};
  EXPECT_NEAR(dynamic_temperature(with({0.25, 0.25, 0.25, 0.25}), options), 1.5, 1e-12);
  Candidates certain;
  certain.list = {{0.0f, 0}, {-2000.0f, 1}};
  EXPECT_EQ(dynamic_temperature(certain, options), 0.5);
  // Half of the largest entropy, squared, is a quarter of the way.
  Candidates half;
  half.list = {{1.0f, 0}, {1.0f, 1}, {kExcluded, 2}, {kExcluded, 3}};
  EXPECT_NEAR(dynamic_temperature(half, options), 0.75, 1e-12);
}

TEST(DynamicTemperature, IsNeverBelowZero) {
  Candidates certain;
  certain.list = {{0.0f, 0}, {-2000.0f, 1}};
  EXPECT_EQ(dynamic_temperature(certain, {.temperature = 0.5, .range = 1.0, .exponent = 1.0}), 0.0);
}

// Limits count as reached where they are met exactly: logits of equal tokens make exact sums.
TEST(Truncation, WhatMeetsALimitExactlyIsWithinIt) {
  const auto quarters = [] {
    Candidates four;
    four.list = {{1.0f, 0}, {1.0f, 1}, {1.0f, 2}, {1.0f, 3}};
    return four;
  };
  Candidates candidates = quarters();
  keep_top_p(candidates, 0.5);
  EXPECT_EQ(ids(candidates), (Ids{0, 1}));
  candidates = quarters();
  keep_min_p(candidates, 1.0);
  EXPECT_EQ(ids(candidates), (Ids{0, 1, 2, 3}));
  candidates = quarters();
  drop_top_choices(candidates, 0.25);
  EXPECT_EQ(ids(candidates), (Ids{3}));
  candidates = quarters();
  keep_within_sigmas(candidates, 0.0);
  EXPECT_EQ(ids(candidates), (Ids{0, 1, 2, 3}));
}

TEST(Typical, OfThoseAsStrangeTheLowestIdIsKept) {
  Candidates candidates;
  candidates.list = {{0.0f, 0}, {0.0f, 1}, {0.0f, 2}};
  std::swap(candidates.list[0], candidates.list[2]);
  keep_typical(candidates, 0.1);
  EXPECT_EQ(ids(candidates), (Ids{0}));
}

TEST(Mirostat2, KeepsWhatIsNoMoreSurprisingThanMu) {
  Candidates candidates = with({0.125, 0.5, 0.25, 0.125});
  keep_for_mirostat_2(candidates, 2.5);
  EXPECT_EQ(ids(candidates), (Ids{1, 2}));
  keep_for_mirostat_2(candidates, -1.0);
  EXPECT_EQ(ids(candidates), (Ids{1}));
}

TEST(Mirostat, KeepsAboutAsManyAsMuBitsOfSurpriseAllowUnderZipf) {
  std::vector<double> zipf;
  for (int rank = 1; rank <= 1000; ++rank) zipf.push_back(1.0 / rank);
  size_t before = 0;
  for (const double mu : {4.0, 6.0, 8.0}) {
    Candidates candidates = with(zipf);
    keep_for_mirostat(candidates, mu);
    // s = 1: k = 2^mu / ln 1000.
    const double k = std::exp2(mu) / std::log(1000.0);
    EXPECT_NEAR(static_cast<double>(candidates.list.size()), k, 1.0) << mu;
    EXPECT_GT(candidates.list.size(), before);
    before = candidates.list.size();
  }
}

TEST(Mirostat, LearnsFromSurprise) {
  EXPECT_DOUBLE_EQ(next_mu(6.0, 5.0, {.tau = 3.0, .eta = 0.25}), 5.5);
  EXPECT_DOUBLE_EQ(next_mu(6.0, 1.0, {.tau = 3.0, .eta = 0.25}), 6.5);
}

}  // namespace
}  // namespace moeflux
