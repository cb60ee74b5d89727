#include "sampling/token_logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moeflux {
namespace {

TEST(TokenLogprobs, AreTheLogarithmsOfASoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), std::log(2.0f)};
  const TokenLogprobs found = token_logprobs(logits, 2, 2);
  EXPECT_NEAR(found.logprob, std::log(2.0 / 8), 1e-6);
  ASSERT_EQ(found.top.size(), 2u);
  EXPECT_EQ(found.top[0].id, 1);
  EXPECT_NEAR(found.top[0].logit, std::log(5.0 / 8), 1e-6);
  EXPECT_EQ(found.top[1].id, 2);
  EXPECT_EQ(found.top[1].logit, found.logprob);
}

TEST(TokenLogprobs, EqualOnesComeInTheOrderOfIds) {
  const std::vector<float> logits = {1, 3, 2, 3, 1, 3};
  const TokenLogprobs found = token_logprobs(logits, 0, 20);
  std::vector<TokenId> ids;
  for (const TokenLogit& one : found.top) ids.push_back(one.id);
  EXPECT_EQ(ids, (std::vector<TokenId>{1, 3, 5, 2, 0, 4}));
  EXPECT_TRUE(token_logprobs(logits, 0, 0).top.empty());
}

TEST(TokenLogprobs, LargeLogitsOverflowNothing) {
  const std::vector<float> logits = {1e30f, 1e30f, -1e30f};
  EXPECT_NEAR(token_logprobs(logits, 1, 0).logprob, std::log(0.5), 1e-6);
}

}  // namespace
}  // namespace moeflux
