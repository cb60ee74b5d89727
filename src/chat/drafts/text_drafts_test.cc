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
  TextDrafts index = index_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 1, 2, 3, 4, 5}, 3);
  EXPECT_EQ(index.draft(64), (Tokens{6, 7, 8, 9, 9}));
  EXPECT_EQ(index.draft(2), (Tokens{6, 7}));
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

// The text of a copy whose sixth token, 50, may stand for 6 or for more or fewer tokens.
Tokens drafts_behind(const Tokens& copy) {
  TextDrafts index(4);
  for (TokenId token = 1; token <= 20; ++token) index.push(token);
  bool has_drafted = false;
  for (const TokenId token : copy) {
    index.push(token);
    has_drafted |= !index.draft(8).empty();
  }
  EXPECT_TRUE(has_drafted);
  return index.draft(8);
}

TEST(TextDrafts, ACopyThatDiffersGoesOnBehindTwoEqualTokens) {
  EXPECT_EQ(drafts_behind({1, 2, 3, 4, 5, 50}), Tokens());
  EXPECT_EQ(drafts_behind({1, 2, 3, 4, 5, 50, 7}), Tokens());
  EXPECT_EQ(drafts_behind({1, 2, 3, 4, 5, 50, 7, 8}), (Tokens{9, 10, 11, 12}));
  EXPECT_EQ(drafts_behind({1, 2, 3, 4, 5, 50, 51, 52, 6, 7}), (Tokens{8, 9, 10, 11}));
  EXPECT_EQ(drafts_behind({1, 2, 3, 4, 5, 9, 10}), (Tokens{11, 12, 13, 14}));
  EXPECT_EQ(drafts_behind({1, 2, 3, 4, 5, 50, 7, 8, 9, 10, 11}), (Tokens{12, 13, 14, 15, 16}));
}

TEST(TextDrafts, ACopyIsGivenUpBehindManyOtherTokens) {
  Tokens copy = {1, 2, 3, 4, 5};
  for (TokenId token = 100; token < 140; ++token) copy.push_back(token);
  copy.insert(copy.end(), {9, 10});
  EXPECT_EQ(drafts_behind(copy), Tokens());
}

// Two equal tokens are near the differing ones in several places: the likeliest is as far on.
TEST(TextDrafts, OfSeveralPlacesTheOneThatReplacesCounts) {
  TextDrafts index(4);
  for (const TokenId token : {1, 2, 3, 4, 5, 6, 7, 8, 30, 7, 8, 40, 1, 2, 3, 4, 5, 50, 7, 8}) {
    index.push(token);
    (void)index.draft(8);
  }
  EXPECT_EQ(index.draft(1), Tokens{30});
}

TEST(TextDrafts, ARepetitionGoesOn) {
  EXPECT_EQ(index_of({7, 1, 2, 1, 2, 1, 2}, 2).draft(4), (Tokens{1, 2, 1, 2}));
}

}  // namespace
}  // namespace moeflux
