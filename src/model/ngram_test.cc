#include "model/ngram.h"

#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/tensor_index.h"
#include "tests/support/golden_file.h"

namespace moeflux {
namespace {

// As the golden checkpoint's config.json has it.
NgramSpec golden_spec() {
  return {.ngram_size = 3,
          .heads_per_ngram = 2,
          .embed_dim = 64,
          .vocab_base = 1000,
          .vocab_divisor = 128,
          .parts = 2,
          .seed = 1234,
          .number = 0,
          .boundary = 2};
}
constexpr int64_t kVocab = 256;

std::vector<int64_t> rows_of(const NgramHashes& hashes, const std::vector<TokenId>& past,
                             const std::vector<TokenId>& tokens, size_t at) {
  std::vector<int64_t> rows(static_cast<size_t>(hashes.heads()));
  hashes.find_rows(past, tokens, at, rows);
  return rows;
}

TEST(Ngrams, NumbersAreThoseThatTheGoldenCheckpointStores) {
  const auto index =
      TensorIndex::open(testing::tests_directory() + "/golden/models/qwen4_exp_text");
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  const NgramHashes hashes = make_hashes(golden_spec(), kVocab);
  const auto stored = [&](const std::string& name) {
    const TensorEntry* entry = index->find("model.layers.0.ple.ple_embedding." + name);
    EXPECT_NE(entry, nullptr);
    std::vector<int64_t> values(static_cast<size_t>(entry->shape[0]));
    EXPECT_TRUE(read_tensor(*index, *entry, std::as_writable_bytes(std::span(values))).ok());
    return values;
  };
  EXPECT_EQ(hashes.multipliers, stored("layer_multipliers"));
  EXPECT_EQ(hashes.sizes, stored("ngram_heads_vocab_sizes"));
  EXPECT_EQ(hashes.offsets, stored("ngram_heads_offsets"));
  EXPECT_EQ(rows_of_part(golden_spec(), hashes), 2048);
}

TEST(Ngrams, LaterLayersHaveLaterPrimesAndOtherMultipliers) {
  NgramSpec second = golden_spec();
  second.number = 1;
  const NgramHashes a = make_hashes(golden_spec(), kVocab);
  const NgramHashes b = make_hashes(second, kVocab);
  EXPECT_GT(b.sizes.front(), a.sizes.back());
  EXPECT_NE(a.multipliers, b.multipliers);
  EXPECT_EQ(b.offsets.front(), 0);
}

TEST(Ngrams, RowsFollowFromTheTokensAndTheirPastAlone) {
  const NgramHashes hashes = make_hashes(golden_spec(), kVocab);
  const std::vector<TokenId> text = {7, 9, 200, 9, 7};
  for (size_t at = 0; at < text.size(); ++at) {
    const std::vector<int64_t> whole = rows_of(hashes, {}, text, at);
    for (size_t cut = 0; cut <= at; ++cut) {
      const auto middle = text.begin() + static_cast<ptrdiff_t>(cut);
      EXPECT_EQ(rows_of(hashes, {text.begin(), middle}, {middle, text.end()}, at - cut), whole)
          << at << " cut at " << cut;
    }
    for (size_t head = 0; head < whole.size(); ++head) {
      EXPECT_GE(whole[head], hashes.offsets[head]);
      EXPECT_LT(whole[head], hashes.offsets[head] + hashes.sizes[head]);
    }
  }
}

TEST(Ngrams, TokensDoNotSeePastABoundary) {
  const NgramHashes hashes = make_hashes(golden_spec(), kVocab);
  // Tokens before a boundary count as boundaries, as do those before the first token.
  EXPECT_EQ(rows_of(hashes, {}, {7, 2, 9, 8}, 2), rows_of(hashes, {}, {9}, 0));
  EXPECT_EQ(rows_of(hashes, {}, {7, 2, 9, 8}, 3), rows_of(hashes, {}, {9, 8}, 1));
  EXPECT_EQ(rows_of(hashes, {5, 6, 2}, {9}, 0), rows_of(hashes, {}, {9}, 0));
  // A boundary itself sees what is before it.
  EXPECT_NE(rows_of(hashes, {7, 9}, {2}, 0), rows_of(hashes, {}, {2}, 0));
}

// numpy 2.4: default_rng(10007 * layer), integers below (2^63 - 1) // codes // 2, twice and one
// more.
TEST(Ngrams, MultipliersOfCodesAreNumpys) {
  NgramSpec spec{.ngram_size = 4, .heads_per_ngram = 2, .embed_dim = 96, .vocab_base = 64};
  spec.num_codes = 99092;
  spec.pad = 2;
  spec.seed = 10007;
  EXPECT_EQ(make_hashes(spec, 129280).multipliers,
            (std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  spec.seed = int64_t{10007} << 20;
  EXPECT_EQ(make_hashes(spec, 129280).multipliers,
            (std::vector<int64_t>{51037043132141, 92260983990089, 71963101850427, 15898000912125}));
}

TEST(Ngrams, TokensAreHashedByTheirCodes) {
  NgramSpec spec{.ngram_size = 3, .heads_per_ngram = 2, .embed_dim = 64, .vocab_base = 1000};
  spec.num_codes = 3;
  spec.pad = 4;
  NgramHashes hashes = make_hashes(spec, 6);
  hashes.codes = {0, 1, 2, 0, 1, 2};
  EXPECT_EQ(rows_of(hashes, {}, {0, 1, 2}, 2), rows_of(hashes, {}, {3, 4, 5}, 2));
  EXPECT_NE(rows_of(hashes, {}, {0, 1, 2}, 2), rows_of(hashes, {}, {0, 2, 2}, 2));
  // All before the first token has the pad's code, and nothing ends an n-gram.
  EXPECT_EQ(rows_of(hashes, {}, {2}, 0), rows_of(hashes, {4, 1}, {2}, 0));
  EXPECT_NE(rows_of(hashes, {0, 4}, {2}, 0), rows_of(hashes, {2, 4}, {2}, 0));
  const int64_t hash = 2 * hashes.multipliers[0] ^ 1 * hashes.multipliers[1];
  EXPECT_EQ(rows_of(hashes, {1}, {2}, 0)[0], hash % hashes.sizes[0]);
}

}  // namespace
}  // namespace moeflux
