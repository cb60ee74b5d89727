#include "serve/anthropic/prompt_nonces.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

TEST(PromptNonces, AreTheBillingLineAndTheCounter) {
  EXPECT_EQ(without_nonces("x-anthropic-billing-header: cch=fa690;"), "");
  EXPECT_EQ(without_nonces("x-anthropic-billing-header: cch=fa690;\nYou are."), "You are.");
  EXPECT_EQ(without_nonces("You are.\n\n<total_tokens>14999436 tokens left</total_tokens>"),
            "You are.");
  EXPECT_EQ(without_nonces("a <total_tokens>1 tokens left</total_tokens> b"
                           "\n<total_tokens>2 tokens left</total_tokens>"),
            "a b");
}

TEST(PromptNonces, AllElseStays) {
  for (const char* text : {"", "You are.", "see x-anthropic-billing-header: x", "<total_tokens>",
                           "<total_tokens>many tokens left</total_tokens>",
                           "<total_tokens> tokens left</total_tokens>", "<total_tokens>3",
                           "a \n b <total_tokens>3 tokens</total_tokens> "}) {
    EXPECT_EQ(without_nonces(text), text);
  }
}

}  // namespace
}  // namespace moeflux::serve
