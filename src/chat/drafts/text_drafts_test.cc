#include "chat/drafts/text_drafts.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;

TextDrafts index_of(const Tokens& tokens, int64_t match_min) {
  TextDrafts index(match_min);
  for (const TokenId token : tokens) index.push(token);
  return index;
}

TEST(TextDrafts, WhatFollowedTheRepeatedEndIsDrafted) {
  const TextDrafts index = index_of({1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 3}, 3);
  EXPECT_EQ(index.draft(64), (Tokens{4, 5, 6}));
  EXPECT_EQ(index.draft(2), (Tokens{4, 5}));
  EXPECT_EQ(index.draft(0), Tokens());
}

TEST(TextDrafts, AnEndThatIsTooShortOrNewHasNone) {
  EXPECT_EQ(index_of({}, 1).draft(8), Tokens());
  EXPECT_EQ(index_of({1, 2, 3, 7, 2, 3}, 3).draft(8), Tokens());
  EXPECT_EQ(index_of({1, 2, 3, 4}, 2).draft(8), Tokens());
}

TEST(TextDrafts, TheLongestMatchCounts) {
  EXPECT_EQ(index_of({1, 2, 3, 4, 5, 2, 3, 6, 0, 1, 2, 3}, 2).draft(1), (Tokens{4}));
}

TEST(TextDrafts, ARepetitionGoesOn) {
  EXPECT_EQ(index_of({7, 1, 2, 1, 2, 1, 2}, 2).draft(4), (Tokens{1, 2, 1, 2}));
}

}  // namespace
}  // namespace moeflux
