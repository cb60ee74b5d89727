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
    return Continuation(tokenizer_, sampler_, std::move(limits), sink_);
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
    if (text.end()) text.finish();
    return drawn;
  }

  Tokenizer tokenizer_ =
      std::move(load_tokenizer(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m")).value();
  Sampler sampler_ = std::move(Sampler::create({.temperature = 0})).value();
  Tokens tokens_ = *tokenizer_.encode("Once upon a time there was a king");
  std::string written_;
  TextSink sink_ = [this](std::string_view text) {
    written_ += text;
    return true;
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

TEST_F(ContinuationTest, AStopStringEndsTheTextBeforeIt) {
  Continuation text = make({.tokens_max = -1, .places = 100, .stop_strings = {" ti"}});
  draw(text, tokens_);
  EXPECT_EQ(text.end(), FinishReason::kStopString);
  EXPECT_EQ(written_, "Once upon a");
}

TEST_F(ContinuationTest, AStopRequestEndsItAfterTheTokenAtHand) {
  std::stop_source stop;
  Continuation text = make({.tokens_max = -1, .places = 100, .stop = stop.get_token()});
  EXPECT_EQ(draw(text, {tokens_[0], tokens_[1]}), 2u);
  EXPECT_FALSE(text.end());
  stop.request_stop();
  EXPECT_EQ(draw(text, tokens_), 1u);
  EXPECT_EQ(text.end(), FinishReason::kCancelled);
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
}

}  // namespace
}  // namespace moeflux
