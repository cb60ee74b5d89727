// Ids and texts against those of the `tokenizers` library, written by
// tools/oracles/tokenizer_golden.py for one small tokenizer per pre-tokenizer pattern and for the
// model in the repository.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/encoding/utf8.h"
#include "text/golden_test_util.h"
#include "text/tokenizer.h"

namespace moeflux {
namespace {

const std::string kSource = MOEFLUX_SOURCE_DIR;
const std::string kGolden = tokenizer_golden_folder();

std::vector<TokenId> join(std::vector<TokenId> a, const std::vector<TokenId>& b,
                          const std::vector<TokenId>& c) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

class TokenizerGolden : public ::testing::TestWithParam<std::string> {
 protected:
  static Tokenizer load() {
    const std::string path = GetParam() == "fable-20m"
                                 ? kSource + "/models/fable-20m/tokenizer.json"
                                 : kGolden + GetParam() + ".tokenizer.json";
    Result<Tokenizer> tokenizer = Tokenizer::parse(read_file(path), path);
    EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().to_string());
    return std::move(tokenizer).value();
  }
  static Json golden() { return read_json(kGolden + GetParam() + ".golden.json"); }
};

TEST_P(TokenizerGolden, EncodesAsTheLibraryDoes) {
  const Tokenizer tokenizer = load();
  const Json inputs = read_json(kGolden + "inputs.json");
  const Json expected = golden()["encodings"];
  ASSERT_EQ(inputs.size(), expected.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string text = bytes_of(inputs[i]);
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok()) << ids.error().to_string();
    EXPECT_EQ(*ids, expected[i]["ids"].get<std::vector<TokenId>>()) << i << ": " << inputs[i];
    EXPECT_EQ(tokenizer.decode(*ids), expected[i]["text"].get<std::string>()) << i;
  }
}

TEST_P(TokenizerGolden, AddsTheTemplatesTokensWhenAsked) {
  const Tokenizer tokenizer = load();
  const Json inputs = read_json(kGolden + "inputs.json");
  const Json expected = golden()["encodings"];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto ids = tokenizer.encode(bytes_of(inputs[i]), {.add_special_tokens = true});
    ASSERT_TRUE(ids.ok()) << ids.error().to_string();
    EXPECT_EQ(*ids, join(expected[i]["prefix"].get<std::vector<TokenId>>(),
                         expected[i]["ids"].get<std::vector<TokenId>>(),
                         expected[i]["suffix"].get<std::vector<TokenId>>()))
        << i;
  }
}

TEST_P(TokenizerGolden, DecodesAnyIdsAsTheLibraryDoes) {
  const Tokenizer tokenizer = load();
  const Json decodings = golden()["decodings"];
  for (const Json& item : decodings) {
    const auto ids = item["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer.decode(ids), item["text"].get<std::string>()) << item["ids"];
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special = true}),
              item["text_without_special"].get<std::string>())
        << item["ids"];
  }
}

TEST_P(TokenizerGolden, StreamedPiecesAreWholeCharactersAndTheSameText) {
  const Tokenizer tokenizer = load();
  const Json file = golden();
  for (const char* section : {"encodings", "decodings"}) {
    for (const Json& item : file[section]) {
      for (const bool skip_special : {false, true}) {
        const auto ids = item["ids"].get<std::vector<TokenId>>();
        Detokenizer stream(tokenizer, {.skip_special = skip_special});
        std::string text;
        for (const TokenId id : ids) {
          const std::string piece = stream.push(id);
          EXPECT_TRUE(is_valid_utf8(piece)) << item["ids"];
          text += piece;
        }
        text += stream.finish();
        EXPECT_EQ(text, tokenizer.decode(ids, {.skip_special = skip_special})) << item["ids"];
        EXPECT_EQ(stream.finish(), "");
      }
    }
  }
}

TEST_P(TokenizerGolden, InertTextHasNoSpecialTokens) {
  const Tokenizer tokenizer = load();
  for (const Json& input : read_json(kGolden + "inputs.json")) {
    const auto ids = tokenizer.encode(bytes_of(input), {.match_added_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.error().to_string();
    for (const TokenId id : *ids) EXPECT_FALSE(tokenizer.is_special(id)) << input;
  }
}

TEST_P(TokenizerGolden, ANovelBecomesTheSameIds) {
  const Json expected = golden()["long_text"];
  const std::string text = read_file(kSource + "/tests/golden/text/northanger-abbey.txt");
  ASSERT_EQ(text.size(), expected["bytes"]);
  const auto ids = load().encode(text);
  ASSERT_TRUE(ids.ok()) << ids.error().to_string();
  EXPECT_EQ(ids->size(), expected["ids"]);
  EXPECT_EQ(fnv1a(*ids), expected["fnv1a"].get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Patterns, TokenizerGolden,
                         ::testing::Values("gpt2", "gpt2-prefix", "digits", "llama3", "qwen2",
                                           "qwen35", "glm4", "deepseek", "o200k", "exaone",
                                           "laguna", "kimi", "tekken", "bailing", "afmoe",
                                           "cohere2", "digits-bare", "llama2", "mixtral",
                                           "metaspace", "gemma", "fable-20m"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace moeflux
