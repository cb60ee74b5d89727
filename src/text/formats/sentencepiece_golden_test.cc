// Ids and texts against those of the `sentencepiece` library, written by
// tools/oracles/sentencepiece_golden.py for models that differ in their normaliser, in what becomes
// of unknown characters and in where spaces go.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/encoding/utf8.h"
#include "text/formats/sentencepiece_model.h"
#include "text/golden_test_util.h"

namespace moeflux {
namespace {

const std::string kSentencePieces = tokenizer_golden_folder() + "sentencepiece-";

class SentencePieceGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static Tokenizer load() {
    const std::string path = kSentencePieces + GetParam() + ".tokenizer.model";
    Result<Tokenizer> tokenizer = parse_sentencepiece(read_file(path), "", path);
    EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().to_string());
    return std::move(tokenizer).value();
  }
  static Json golden() { return read_json(kSentencePieces + GetParam() + ".golden.json"); }

  // The library knows no added tokens: control symbols are never matched in a text.
  static void expect_same(const Tokenizer& tokenizer, const std::string& text,
                          const Json& expected) {
    const auto ids = tokenizer.encode(text, {.match_added_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.error().to_string();
    EXPECT_EQ(*ids, expected["ids"].get<std::vector<TokenId>>()) << Json(text).dump();
    EXPECT_EQ(tokenizer.decode(*ids), expected["text"].get<std::string>()) << Json(text).dump();
    Detokenizer stream(tokenizer);
    std::string streamed;
    for (const TokenId id : *ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), tokenizer.decode(*ids)) << Json(text).dump();
  }
};

TEST_P(SentencePieceGolden, EncodesAndDecodesAsTheLibraryDoes) {
  const Tokenizer tokenizer = load();
  const Json inputs = read_json(tokenizer_golden_folder() + "inputs.json");
  const Json file = golden();
  ASSERT_EQ(inputs.size(), file["encodings"].size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    expect_same(tokenizer, replace_invalid_utf8(bytes_of(inputs[i])), file["encodings"][i]);
  }
  ASSERT_FALSE(file["extra"].empty());
  for (const Json& item : file["extra"]) {
    expect_same(tokenizer, item["input"].get<std::string>(), item);
  }
}

TEST_P(SentencePieceGolden, ANovelBecomesTheSameIds) {
  const Json expected = golden()["long_text"];
  const auto ids = load().encode(
      read_file(std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/text/northanger-abbey.txt"));
  ASSERT_TRUE(ids.ok()) << ids.error().to_string();
  EXPECT_EQ(ids->size(), expected["ids"]);
  EXPECT_EQ(fnv1a(*ids), expected["fnv1a"].get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceGolden,
                         ::testing::Values("plain", "rules", "suffix", "bare"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace moeflux
