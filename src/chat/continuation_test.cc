#include "chat/continuation.h"

#include <gtest/gtest.h>

#include "chat/model_text.h"

namespace moeflux {
namespace {

// Texts of tokens that the test chooses, by making their logits the highest: there is no model.
class ContinuationTest : public ::testing::Test {
 protected:
  using Tokens = std::vector<TokenId>;

  Continuation make(TextLimits limits) {
    return Continuation(&tokenizer_, sampler_, std::move(limits), sink_);
  }
  LastLogits wanting(TokenId token) {
    logits_.assign(static_cast<size_t>(tokenizer_.vocab_size()), 0.0f);
    logits_[static_cast<size_t>(token)] = 1.0f;
    return {.all = logits_};
  }
  /// Draws `tokens` one after another until the text ends; how many were drawn.
  size_t draw(Continuation& text, const Tokens& tokens) {
    size_t drawn = 0;
    while (!text.end() && drawn < tokens.size()) {
      const auto token = text.next(wanting(tokens[drawn++]));
      EXPECT_TRUE(token.ok());
      EXPECT_EQ(token->value_or(tokens[drawn - 1]), tokens[drawn - 1]);
    }
    if (text.end()) written_ += text.rest();
    return drawn;
  }

  Tokenizer tokenizer_ =
      std::move(load_tokenizer(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m")).value();
  Sampler sampler_ = std::move(Sampler::create({.temperature = 0})).value();
  Tokens tokens_ = *tokenizer_.encode("Once upon a time there was a king");
  std::string written_;
  std::vector<TokenId> stop_tokens_;
  std::optional<FinishReason> verdict_;
  std::optional<TokenLogprobs> logprobs_;
  TokenSink sink_ = [this](const DrawnToken& drawn) {
    written_ += drawn.text;
    if (drawn.is_stop) stop_tokens_.push_back(drawn.token);
    logprobs_.reset();
    if (drawn.logprobs != nullptr) logprobs_ = *drawn.logprobs;
    return verdict_;
  };
  std::vector<float> logits_;
};

TEST_F(ContinuationTest, EndsAfterSoManyTokens) {
  Continuation text = make({.tokens_max = 3, .places = 100});
  EXPECT_EQ(draw(text, tokens_), 3u);
  EXPECT_EQ(text.end(), FinishReason::kTokensMax);
  EXPECT_EQ(written_, tokenizer_.decode(Tokens(tokens_.begin(), tokens_.begin() + 3)));
  EXPECT_EQ(make({.tokens_max = 0, .places = 100}).end(), FinishReason::kTokensMax);
}

TEST_F(ContinuationTest, ATokenWithoutAPlaceIsTheLast) {
  Continuation text = make({.tokens_max = -1, .places = 2});
  EXPECT_EQ(draw(text, tokens_), 3u);
  EXPECT_EQ(text.end(), FinishReason::kContextFull);
  EXPECT_EQ(text.generated_tokens(), 3);
}

TEST_F(ContinuationTest, AStopTokenIsNoPartOfTheText) {
  Continuation text = make({.tokens_max = -1, .places = 100, .stop_tokens = {tokens_[4]}});
  EXPECT_EQ(draw(text, tokens_), 5u);
  EXPECT_EQ(text.end(), FinishReason::kStopToken);
  EXPECT_EQ(text.generated_tokens(), 4);
  EXPECT_EQ(written_, tokenizer_.decode(Tokens(tokens_.begin(), tokens_.begin() + 4)));
}

TEST_F(ContinuationTest, NoTokenEndsATextThatIsTooShort) {
  Continuation text =
      make({.tokens_max = -1, .places = 100, .stop_tokens = {tokens_[4]}, .tokens_min = 2});
  EXPECT_EQ(text.best_needed(tokenizer_.vocab_size()).count, 0);
  for (int i = 0; i < 2; ++i) {
    const auto token = text.next(wanting(tokens_[4]));
    ASSERT_TRUE(token.ok() && token->has_value());
    EXPECT_NE(**token, tokens_[4]);
  }
  EXPECT_GT(text.best_needed(tokenizer_.vocab_size()).count, 0);
  ASSERT_TRUE(text.next(wanting(tokens_[4])).ok());
  EXPECT_EQ(text.end(), FinishReason::kStopToken);
  EXPECT_EQ(text.generated_tokens(), 2);
}

TEST_F(ContinuationTest, TokensThatAreNotAllowedAreNotDrawnNorEndTheText) {
  Continuation text = make({.tokens_max = -1,
                            .places = 100,
                            .stop_tokens = {tokens_[4]},
                            .allowed_tokens = {tokens_[1], tokens_[2]}});
  for (const TokenId other : {tokens_[0], tokens_[4]}) {
    const auto token = text.next(wanting(other));
    ASSERT_TRUE(token.ok() && token->has_value());
    EXPECT_EQ(**token, std::min(tokens_[1], tokens_[2]));
  }
  Continuation ended = make({.tokens_max = -1,
                             .places = 100,
                             .stop_tokens = {tokens_[4]},
                             .allowed_tokens = {tokens_[1], tokens_[4]}});
  ASSERT_TRUE(ended.next(wanting(tokens_[4])).ok());
  EXPECT_EQ(ended.end(), FinishReason::kStopToken);
}

TEST_F(ContinuationTest, AnEndThatAloneIsAllowedComesHoweverShortTheTextIs) {
  Continuation text = make({.tokens_max = -1,
                            .places = 100,
                            .stop_tokens = {tokens_[4]},
                            .tokens_min = 3,
                            .allowed_tokens = {tokens_[4]}});
  ASSERT_TRUE(text.next(wanting(tokens_[0])).ok());
  EXPECT_EQ(text.end(), FinishReason::kStopToken);
}

TEST_F(ContinuationTest, TheSinkMayEndItWithTheTokenAtHand) {
  Continuation text = make({.tokens_max = 3, .places = 100});
  EXPECT_EQ(draw(text, {tokens_[0], tokens_[1]}), 2u);
  EXPECT_FALSE(text.end());
  verdict_ = FinishReason::kStopString;  // before the limit, which this token reaches too
  EXPECT_EQ(draw(text, tokens_), 1u);
  EXPECT_EQ(text.end(), FinishReason::kStopString);
}

TEST_F(ContinuationTest, AStopTokenIsToldAndNobodyCanUndoIt) {
  verdict_ = FinishReason::kStopString;
  Continuation text = make({.tokens_max = -1, .places = 100, .stop_tokens = {tokens_[0]}});
  draw(text, tokens_);
  EXPECT_EQ(text.end(), FinishReason::kStopToken);
  EXPECT_EQ(stop_tokens_, Tokens{tokens_[0]});
}

TEST_F(ContinuationTest, ForcedTokensComeInPlaceOfDrawnOnesAndAreSeenByTheSampler) {
  sampler_ = std::move(Sampler::create({.temperature = 0, .presence_penalty = 5})).value();
  Continuation text = make({.tokens_max = -1, .places = 100, .stop_tokens = {tokens_[3]}});
  text.force(std::span(tokens_).first(2));
  text.force(std::span(tokens_).subspan(2, 1));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(text.next(wanting(7)).ok());
  EXPECT_EQ(written_, tokenizer_.decode(Tokens(tokens_.begin(), tokens_.begin() + 3)));
  const auto drawn = text.next(wanting(tokens_[0]));  // which the penalty forbids now
  ASSERT_TRUE(drawn.ok() && drawn->has_value());
  EXPECT_NE(**drawn, tokens_[0]);
  text.force({&tokens_[3], 1});
  ASSERT_TRUE(text.next(wanting(7)).ok());
  EXPECT_EQ(text.end(), FinishReason::kStopToken);
}

TEST_F(ContinuationTest, LogprobsAreToldOfEachTokenIfTheyAreWanted) {
  Continuation text = make({.tokens_max = -1, .places = 100, .top_logprobs = 2});
  EXPECT_EQ(text.best_needed(tokenizer_.vocab_size()).count, 0);
  const LastLogits logits = wanting(tokens_[0]);
  text.force({&tokens_[1], 1});
  ASSERT_TRUE(text.next(logits).ok());
  const TokenLogprobs expected = token_logprobs(logits.all, tokens_[1], 2);
  ASSERT_TRUE(logprobs_);
  EXPECT_EQ(logprobs_->logprob, expected.logprob);
  ASSERT_EQ(logprobs_->top.size(), 2u);
  EXPECT_EQ(logprobs_->top[0].id, tokens_[0]);
  const TokenId nowhere = 1 << 20;
  text.force({&nowhere, 1});
  EXPECT_FALSE(text.next(logits).ok());
}

TEST_F(ContinuationTest, TheBestLogitsAreEnoughWhereItSaysSo) {
  sampler_ = std::move(Sampler::create({.top_k = 3, .seed = 5})).value();
  Continuation text = make({.tokens_max = -1, .places = 100});
  const BestLogits best = text.best_needed(tokenizer_.vocab_size());
  EXPECT_EQ(best.count, 3);
  const std::vector<TokenLogit> three = {{1.0f, tokens_[0]}, {0.5f, 7}, {0.25f, 9}};
  std::vector<float> all(static_cast<size_t>(best.of), -1.0f);
  for (const TokenLogit& one : three) all[static_cast<size_t>(one.id)] = one.logit;
  Sampler other = std::move(Sampler::create(sampler_.options())).value();
  for (int i = 0; i < 20; ++i) {
    const auto drawn = text.next({.best = three, .best_of = best.of});
    ASSERT_TRUE(drawn.ok() && drawn->has_value());
    EXPECT_EQ(**drawn, *other.sample(all));
  }
  sampler_ = std::move(Sampler::create({.repeat_penalty = 1.5f})).value();
  EXPECT_EQ(text.best_needed(tokenizer_.vocab_size()).count, 0);
  // Gemma's top-k; one more tells whether there are as many.
  sampler_ = std::move(Sampler::create({.top_k = 64, .repeat_penalty = 1.5f})).value();
  EXPECT_EQ(text.best_needed(tokenizer_.vocab_size(), /*may_rule=*/true).count, 65);
}

}  // namespace
}  // namespace moeflux
