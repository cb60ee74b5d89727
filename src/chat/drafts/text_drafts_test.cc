#include "chat/drafts/text_drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;

Tokens drafts_of(const Tokens& tokens, int64_t match_min, int64_t tokens_max) {
  TextDrafts index(match_min);
  index.append(tokens);
  Draft draft = index.draft(tokens_max);
  EXPECT_EQ(draft.tokens.size(), draft.confidences.size());
  EXPECT_EQ(index.length(), std::ssize(tokens));
  return draft.tokens;
}

TEST(TextDrafts, WhatFollowedTheRepeatedEndIsDrafted) {
  Tokens text;
  for (TokenId token = 1; token <= 60; ++token) text.push_back(token);
  for (TokenId token = 1; token <= 40; ++token) text.push_back(token);
  EXPECT_EQ(drafts_of(text, 3, 3), (Tokens{41, 42, 43}));
  EXPECT_EQ(drafts_of(text, 3, 2), (Tokens{41, 42}));
  EXPECT_EQ(drafts_of(text, 3, 0), Tokens());
}

TEST(TextDrafts, AnEndThatIsTooShortOrNewHasNone) {
  EXPECT_EQ(drafts_of({}, 1, 8), Tokens());
  EXPECT_EQ(drafts_of({1, 2, 3, 7, 2, 3}, 3, 8), Tokens());
  EXPECT_EQ(drafts_of({1, 2, 3, 4}, 2, 8), Tokens());
}

// The text of `copied` three times over, then its first `count` tokens once more.
Tokens repeated(const Tokens& copied, size_t count) {
  Tokens text;
  for (int i = 0; i < 3; ++i) text.insert(text.end(), copied.begin(), copied.end());
  text.insert(text.end(), copied.begin(), copied.begin() + static_cast<ptrdiff_t>(count));
  return text;
}

TEST(TextDrafts, TheLongestMatchCounts) {
  // Behind 2 3 comes 6 or 4, the last time 4.
  const Tokens text = repeated({1, 2, 3, 6, 9, 9, 5, 2, 3, 4, 8, 8}, 3);
  EXPECT_EQ(drafts_of(text, 2, 1), Tokens{6});
}

// Short repetitions are trusted where all places agree.
TEST(TextDrafts, PlacesThatDifferEndADraft) {
  EXPECT_EQ(drafts_of({1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 6, 9, 1, 2, 3}, 3, 8), Tokens{4});
  EXPECT_EQ(drafts_of({1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 9, 1, 2, 3}, 3, 2), (Tokens{4, 5}));
}

// A record of five tokens whose second one is never the same.
TEST(TextDrafts, WhatWasRightIsLearned) {
  TextDrafts index(2);
  for (TokenId record = 0; record < 40; ++record) {
    index.append(Tokens{1, 2, 100 + record, 3, 4});
  }
  const double known = index.draft(1).confidences.at(0);
  EXPECT_GT(known, 0.95);
  index.append(Tokens{1, 2});
  EXPECT_EQ(index.draft(8).tokens, Tokens());
  index.append(Tokens{200, 3, 4});
  EXPECT_EQ(index.draft(8).tokens, (Tokens{1, 2}));
}

// However it was told.
TEST(TextDrafts, PiecesOfATextAreTheText) {
  const Tokens text = repeated({1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9}, 5);
  TextDrafts whole(3);
  whole.append(text);
  TextDrafts pieces(3);
  for (size_t i = 0; i < text.size(); i += 2) {
    pieces.append(std::span(text).subspan(i, std::min<size_t>(2, text.size() - i)));
    (void)pieces.draft(4);
  }
  EXPECT_EQ(pieces.draft(64).tokens, whole.draft(64).tokens);
  EXPECT_EQ(pieces.draft(64).confidences, whole.draft(64).confidences);
}

TEST(TextDrafts, ARepetitionGoesOn) {
  EXPECT_EQ(drafts_of({7, 1, 2, 1, 2, 1, 2}, 2, 4), (Tokens{1, 2, 1, 2}));
}

}  // namespace
}  // namespace moeflux
