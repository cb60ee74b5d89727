// Breakers over a real vocabulary.
#include "chat/dry_breakers.h"

#include <gtest/gtest.h>

#include "chat/model_text.h"

namespace moeflux {
namespace {

class DryBreakersTest : public ::testing::Test {
 protected:
  std::shared_ptr<const DryBreakers> make(const std::vector<std::string>& texts) {
    return *DryBreakerCache().of(texts, tokenizer_);
  }
  size_t tokens_since(const DryBreakers& breakers, const std::string& text) {
    return breakers.tokens_since(*tokenizer_.encode(text));
  }

  Tokenizer tokenizer_ =
      std::move(load_tokenizer(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m")).value();
};

TEST_F(DryBreakersTest, TokensThatContainATextBreak) {
  const auto breakers = make({"\n", "in"});
  size_t alone = 0;
  for (TokenId token = 0; token < tokenizer_.vocab_size(); ++token) {
    const std::string_view bytes = tokenizer_.token_bytes(token);
    const bool contains = bytes.find('\n') != bytes.npos || bytes.find("in") != bytes.npos;
    EXPECT_EQ(breakers->is_alone(token), contains) << token;
    alone += contains ? 1 : 0;
  }
  EXPECT_GT(alone, 2u);
}

TEST_F(DryBreakersTest, ATextOfSeveralTokensBreaks) {
  const std::string text = "once upon a time";
  const auto breakers = make({text});
  const size_t after = tokenizer_.encode(", he said")->size();
  EXPECT_EQ(tokens_since(*breakers, "it was " + text + ", he said"), after);
  const std::string other = "it was once upon a day, he said";
  EXPECT_EQ(tokens_since(*breakers, other), tokenizer_.encode(other)->size());
}

TEST_F(DryBreakersTest, AreMadeAnewForOtherTexts) {
  DryBreakerCache cache;
  const auto lines = *cache.of({"\n"}, tokenizer_);
  EXPECT_EQ(*cache.of({"\n"}, tokenizer_), lines);
  const auto none = *cache.of({}, tokenizer_);
  EXPECT_EQ(tokens_since(*lines, "a\nb"), 1u);
  EXPECT_EQ(tokens_since(*none, "a\nb"), tokenizer_.encode("a\nb")->size());
}

}  // namespace
}  // namespace moeflux
