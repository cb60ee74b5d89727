// DRY's penalties, by hand and against a search of every pair of places.
#include "sampling/dry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sampling/philox.h"

namespace moeflux {
namespace {

using Text = std::vector<TokenId>;

Candidates zeros(TokenId count) {
  Candidates candidates;
  for (TokenId id = 0; id < count; ++id) candidates.list.push_back({0.0f, id});
  return candidates;
}

std::vector<float> penalties(const Text& text, const DryBreakers& breakers,
                             const DryOptions& options, TokenId count) {
  Candidates candidates = zeros(count);
  penalize_repeats(candidates, text, breakers, options);
  std::vector<float> costs;
  for (const TokenLogit& c : candidates.list) costs.push_back(-c.logit);
  return costs;
}

constexpr DryOptions kDoubling{.multiplier = 1.0, .base = 2.0, .allowed_length = 1};

TEST(Dry, LongerRepetitionsCostMore) {
  // After 1 2 3 came 4, after 3 alone 5.
  EXPECT_EQ(penalties({1, 2, 3, 4, 3, 5, 1, 2, 3}, {}, kDoubling, 6),
            (std::vector<float>{0, 0, 0, 0, 4, 1}));
}

TEST(Dry, RepetitionsDoNotReachAcrossBreakers) {
  const Text text = {1, 2, 3, 4, 0, 1, 2, 3};
  DryBreakers breakers;
  breakers.add(2, {});
  EXPECT_EQ(penalties(text, breakers, kDoubling, 5), (std::vector<float>{0, 0, 0, 0, 1}));
  EXPECT_EQ(breakers.tokens_since(text), 1u);
  DryBreakers of_two;
  of_two.add(1, {2});
  EXPECT_EQ(of_two.tokens_since(text), 1u);
  of_two.add(3, {4});
  EXPECT_EQ(of_two.tokens_since(Text{3, 4, 0}), 1u);
  EXPECT_EQ(of_two.tokens_since(Text{4, 3}), 2u);
  // A breaker itself costs nothing.
  DryBreakers of_four;
  of_four.add(4, {});
  EXPECT_EQ(penalties(text, of_four, kDoubling, 5)[4], 0.0f);
}

TEST(Dry, ALogitStaysFinite) {
  const Text text(5000, 1);
  Candidates candidates = zeros(2);
  penalize_repeats(candidates, text, {}, {.multiplier = 5.0, .base = 3.0, .allowed_length = 2});
  EXPECT_EQ(candidates.list[1].logit, -std::numeric_limits<float>::max());
}

TEST(Dry, AgreesWithASearchOfAllPlaces) {
  for (uint64_t round = 0; round < 300; ++round) {
    uint64_t draw = 0;
    const auto number = [&](int below) {
      return static_cast<int>(uniform_draw(round, draw++) * below);
    };
    const int kinds = 1 + number(4);
    Text text(static_cast<size_t>(number(60)));
    for (TokenId& token : text) token = number(kinds);
    const DryOptions options{.multiplier = 1.0, .base = 1.5, .allowed_length = number(4)};
    std::vector<float> expected(4, 0.0f);
    for (size_t at = 1; at < text.size(); ++at) {
      size_t n = 0;
      while (n < at && text[at - 1 - n] == text[text.size() - 1 - n]) ++n;
      const int length = static_cast<int>(n) - options.allowed_length;
      if (length < 0 || text.size() <= static_cast<size_t>(options.allowed_length)) continue;
      float& cost = expected[static_cast<size_t>(text[at])];
      cost = std::max(cost, static_cast<float>(std::pow(1.5, length)));
    }
    const std::vector<float> costs = penalties(text, {}, options, 4);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(costs[i], expected[i], 1e-6 * expected[i]) << round;
  }
}

}  // namespace
}  // namespace moeflux
