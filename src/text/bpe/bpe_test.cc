// Both merging algorithms against the definition, over random merge tables.
#include "text/bpe/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace moeflux {
namespace {

// The definition: of all adjacent pairs, merge the one of lowest rank, leftmost first, and repeat.
std::vector<TokenId> merge_by_definition(std::vector<TokenId> ids,
                                         const std::vector<BpeMerge>& merges) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    ranks[{merges[rank].left, merges[rank].right}] = rank;
  }
  while (true) {
    size_t best_rank = merges.size();
    size_t best_place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found == ranks.end() || found->second >= best_rank) continue;
      best_rank = found->second;
      best_place = i;
    }
    if (best_rank == merges.size()) return ids;
    ids[best_place] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_place) + 1);
  }
}

TEST(Bpe, PiecesOfEveryLengthMergeAsDefined) {
  std::mt19937 random(1);
  for (int table = 0; table < 20; ++table) {
    Vocabulary vocabulary;
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      ASSERT_TRUE(vocabulary.add(byte, std::string_view(&c, 1), true).ok());
    }
    // Tokens over a, b and c; the order of merges is shuffled, so that ranks follow no pattern.
    std::vector<TokenId> known = {'a', 'b', 'c'};
    std::vector<BpeMerge> merges;
    while (merges.size() < 60) {
      const TokenId left = known[random() % known.size()];
      const TokenId right = known[random() % known.size()];
      const std::string bytes =
          std::string(vocabulary.bytes(left)) + std::string(vocabulary.bytes(right));
      auto id = vocabulary.find(bytes);
      if (!id) {
        id = vocabulary.size();
        ASSERT_TRUE(vocabulary.add(*id, bytes, true).ok());
        known.push_back(*id);
      }
      merges.push_back({left, right, *id});
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const Result<Bpe> bpe = Bpe::create(vocabulary, merges);
    ASSERT_TRUE(bpe.ok());
    Bpe::Scratch scratch;
    for (size_t length = 1; length < 130; ++length) {
      std::string piece;
      while (piece.size() < length) piece.push_back(static_cast<char>('a' + random() % 3));
      std::vector<TokenId> found = {-7};  // earlier tokens stay
      bpe->append(piece, &scratch, &found);
      auto expected = merge_by_definition({piece.begin(), piece.end()}, merges);
      expected.insert(expected.begin(), -7);
      EXPECT_EQ(found, expected) << piece;
    }
  }
}

// The letters a and b and what they make together; no other byte.
Vocabulary two_letters() {
  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.add(0, "a", true).ok());
  EXPECT_TRUE(vocabulary.add(1, "b", true).ok());
  EXPECT_TRUE(vocabulary.add(2, "ab", true).ok());
  return vocabulary;
}

std::vector<TokenId> tokens_of(MissingBytes missing, std::string_view piece) {
  const Result<Bpe> bpe = Bpe::create(two_letters(), {{0, 1, 2}}, std::move(missing));
  EXPECT_TRUE(bpe.ok());
  Bpe::Scratch scratch;
  std::vector<TokenId> found;
  bpe->append(piece, &scratch, &found);
  return found;
}

TEST(Bpe, BytesThatAreNoTokensAreLeftOutAndTheirNeighboursMerge) {
  EXPECT_EQ(tokens_of({}, "axb"), (std::vector<TokenId>{2}));
  EXPECT_EQ(tokens_of({}, "xbxax"), (std::vector<TokenId>{1, 0}));
  EXPECT_TRUE(tokens_of({}, "xyz").empty());
  EXPECT_TRUE(tokens_of({}, std::string(100, 'x')).empty());
}

TEST(Bpe, AnUnknownTokenStandsForBytesThatAreNoTokens) {
  EXPECT_EQ(tokens_of({.unknown = 9}, "axyb"), (std::vector<TokenId>{0, 9, 9, 1}));
  EXPECT_EQ(tokens_of({.unknown = 9, .fuses_unknown = true}, "xyaxyb"),
            (std::vector<TokenId>{9, 0, 9, 1}));
  MissingBytes missing{.unknown = 9};
  missing.spelled['x'] = {7, 8};
  EXPECT_EQ(tokens_of(missing, "axyb"), (std::vector<TokenId>{0, 7, 8, 9, 1}));
}

TEST(Bpe, AVocabularyWithoutASingleByteIsRefused) {
  Vocabulary vocabulary;
  ASSERT_TRUE(vocabulary.add(0, "ab", true).ok());
  EXPECT_EQ(vocabulary.add(0, "x", true).error().code(), ErrorCode::kCorruption);
  const Result<Bpe> bpe = Bpe::create(vocabulary, {});
  ASSERT_FALSE(bpe.ok());
  EXPECT_EQ(bpe.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moeflux
