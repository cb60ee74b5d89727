// The same vocabulary from a tokenizer.json and as GGUF stores it must give the same ids: the
// former is held to the `tokenizers` library by tokenizer_golden_test.cc.
#include "text/formats/stored_vocabulary.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/encoding/byte_alphabet.h"
#include "text/formats/tokenizer_file.h"
#include "text/golden_test_util.h"

namespace moeflux {
namespace {

struct Named {
  std::string file;
  std::string pre;
};

// Flags of added tokens that GGUF does not have are taken out of the other side of the comparison.
Json without_flags(Json added_tokens) {
  for (Json& token : added_tokens) {
    for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized"}) token[flag] = false;
  }
  return added_tokens;
}

StoredVocabulary stored_of(const TokenizerFile& file, const std::string& pre) {
  StoredVocabulary stored{.model = "gpt2", .pre = pre};
  const auto put = [&](int64_t id, const std::string& spelling, TokenKind kind) {
    const auto at = static_cast<size_t>(id);
    if (stored.tokens.size() <= at) {
      for (size_t i = stored.tokens.size(); i <= at + 2;
           ++i) {  // two beyond, as padded models have
        stored.tokens.push_back("[PAD" + std::to_string(i) + "]");
      }
      stored.token_type.resize(stored.tokens.size(), static_cast<int32_t>(TokenKind::kUnused));
    }
    stored.tokens[at] = spelling;
    stored.token_type[at] = static_cast<int32_t>(kind);
  };
  for (const auto& [spelling, id] : file.vocab) put(id, spelling, TokenKind::kNormal);
  for (const Json& token : file.rest["added_tokens"]) {
    put(token["id"].get<int64_t>(), token["content"].get<std::string>(),
        token["special"].get<bool>() ? TokenKind::kControl : TokenKind::kUserDefined);
  }
  for (const auto& [left, right] : file.merges) stored.merges.push_back(left + " " + right);
  return stored;
}

class StoredVocabularyGolden : public ::testing::TestWithParam<Named> {};

TEST_P(StoredVocabularyGolden, EncodesAndDecodesAsItsTokenizerJson) {
  const std::string path =
      GetParam().file == "fable-20m"
          ? std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m/tokenizer.json"
          : tokenizer_golden_folder() + GetParam().file + ".tokenizer.json";
  Json json = read_json(path);
  json["added_tokens"] = without_flags(json["added_tokens"]);
  // Fixtures do not always have the normaliser and the flag of the models that share their splits.
  const std::string& pre = GetParam().pre;
  const bool is_nfc = pre == "olmo" || pre == "command-r" || pre.starts_with("qwen");
  json["normalizer"] = is_nfc ? Json{{"type", "NFC"}} : Json(nullptr);
  json["model"]["ignore_merges"] =
      pre == "glm4" || pre == "llama-bpe" || pre == "tekken" || pre == "lfm2" || pre == "pixtral";
  const std::string text = json.dump();
  const auto expected = Tokenizer::parse(text, path);
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  const auto file = parse_tokenizer_file(text, path);
  ASSERT_TRUE(file.ok());
  const auto tokenizer = make_tokenizer(stored_of(*file, pre), "stored");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->vocab_size(), expected->vocab_size());
  for (const Json& input : read_json(tokenizer_golden_folder() + "inputs.json")) {
    const auto ids = tokenizer->encode(bytes_of(input));
    ASSERT_TRUE(ids.ok()) << ids.error().to_string();
    EXPECT_EQ(*ids, *expected->encode(bytes_of(input))) << input;
    EXPECT_EQ(tokenizer->decode(*ids), expected->decode(*ids)) << input;
    EXPECT_EQ(tokenizer->decode(*ids, {.skip_special = true}),
              expected->decode(*ids, {.skip_special = true}))
        << input;
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, StoredVocabularyGolden,
                         ::testing::Values(Named{"gpt2", "gpt-2"}, Named{"gpt2", "olmo"},
                                           Named{"llama3", "llama-bpe"}, Named{"qwen2", "qwen2"},
                                           Named{"fable-20m", "qwen35"}, Named{"qwen35", "qwen35"},
                                           Named{"glm4", "glm4"}, Named{"glm4", "chatglm-bpe"},
                                           Named{"deepseek", "deepseek-v3"},
                                           Named{"o200k", "gpt-4o"}, Named{"exaone", "exaone-moe"},
                                           Named{"laguna", "laguna"}, Named{"tekken", "tekken"},
                                           Named{"bailing", "bailingmoe2"}, Named{"afmoe", "afmoe"},
                                           Named{"cohere2", "cohere2moe"},
                                           Named{"digits-bare", "command-r"},
                                           Named{"digits-bare", "refact"}, Named{"llama3", "lfm2"},
                                           Named{"llama3", "pixtral"}, Named{"llama3", "dbrx"}),
                         [](const auto& instance) {
                           std::string name = instance.param.file + "_" + instance.param.pre;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// A vocabulary of the 256 bytes and what a test adds.
StoredVocabulary bytes_and(const std::vector<std::string>& tokens) {
  StoredVocabulary stored{.model = "gpt2", .pre = "gpt-2"};
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    stored.tokens.push_back(spelling_of_bytes(std::string_view(&c, 1)));
  }
  stored.tokens.insert(stored.tokens.end(), tokens.begin(), tokens.end());
  stored.token_type.assign(stored.tokens.size(), static_cast<int32_t>(TokenKind::kNormal));
  return stored;
}

std::string problem_of(const StoredVocabulary& stored) {
  const auto tokenizer = make_tokenizer(stored, "x.gguf");
  EXPECT_FALSE(tokenizer.ok());
  return tokenizer.ok() ? "" : tokenizer.error().message();
}

TEST(StoredVocabulary, UnknownModelsAndSplitsAreNamed) {
  StoredVocabulary stored = bytes_and({});
  stored.pre = "nobody's";
  EXPECT_TRUE(
      problem_of(stored).starts_with("x.gguf: tokenizer.ggml.pre is \"nobody's\", expected"))
      << problem_of(stored);
  stored.model = "rwkv";
  EXPECT_NE(problem_of(stored).find("\"rwkv\""), std::string::npos) << problem_of(stored);
}

TEST(StoredVocabulary, ListsMustBeAsLongAsTheTokens) {
  StoredVocabulary stored = bytes_and({});
  stored.token_type.pop_back();
  EXPECT_EQ(problem_of(stored), "x.gguf: tokenizer.ggml.token_type has 255 entries for 256 tokens");
  stored = bytes_and({});
  stored.scores = {1.0f};
  EXPECT_EQ(problem_of(stored), "x.gguf: tokenizer.ggml.scores has 1 entries for 256 tokens");
  stored.tokens.clear();
  EXPECT_EQ(problem_of(stored), "x.gguf: a vocabulary without tokens");
}

TEST(StoredVocabulary, ContradictionsAreNamed) {
  EXPECT_EQ(problem_of(bytes_and({"ab", "ab"})), "x.gguf: tokens 256 and 257 are the same");
  StoredVocabulary stored = bytes_and({"ab"});
  stored.merges = {"a c"};
  EXPECT_EQ(problem_of(stored),
            "x.gguf: merge 0 (\"a c\"): a part or the whole is not in the vocabulary");
  stored.merges = {"ab"};
  EXPECT_EQ(problem_of(stored), "x.gguf: merge 0 is \"ab\", expected two tokens and one space");
  stored.merges = {"a b"};
  stored.token_type[256] = 7;
  EXPECT_EQ(problem_of(stored),
            "x.gguf: token 256 has type 7 (tokenizer.ggml.token_type), expected 0 to 6");
  stored.token_type[256] = static_cast<int32_t>(TokenKind::kByte);
  EXPECT_EQ(problem_of(stored), "x.gguf: byte token 256 is \"ab\", expected <0x00> to <0xFF>");
  stored = bytes_and({"<a>", "<a>"});
  stored.token_type[256] = stored.token_type[257] = static_cast<int32_t>(TokenKind::kControl);
  EXPECT_NE(problem_of(stored).find("tokens 256 and 257"), std::string::npos) << problem_of(stored);
}

TEST(StoredVocabulary, SpecialIdsLieAmongTheTokens) {
  StoredVocabulary stored = bytes_and({});
  stored.bos_token_id = 256;
  EXPECT_EQ(problem_of(stored),
            "x.gguf: tokenizer.ggml.bos_token_id is 256, but there are 256 tokens");
  stored.bos_token_id = -1;
  EXPECT_EQ(problem_of(stored),
            "x.gguf: tokenizer.ggml.bos_token_id is -1, but there are 256 tokens");
  stored.bos_token_id.reset();
  stored.add_bos_token = true;
  EXPECT_EQ(problem_of(stored),
            "x.gguf: tokenizer.ggml.add_bos_token is true, but there is no such token");
}

TEST(StoredVocabulary, BeginningAndEndAreAddedWhereTheFileSaysSo) {
  StoredVocabulary stored = bytes_and({"<s>", "</s>"});
  stored.token_type[256] = stored.token_type[257] = static_cast<int32_t>(TokenKind::kControl);
  stored.bos_token_id = 256;
  stored.eos_token_id = 257;
  const auto ids = [](const StoredVocabulary& vocabulary) {
    return *make_tokenizer(vocabulary, "x")->encode("a", {.add_special_tokens = true});
  };
  EXPECT_EQ(ids(stored), (std::vector<TokenId>{'a'}));
  stored.add_bos_token = stored.add_eos_token = true;
  EXPECT_EQ(ids(stored), (std::vector<TokenId>{256, 'a', 257}));
  stored.add_bos_token = stored.add_eos_token = std::nullopt;
  stored.pre = "llama3";  // its models begin every text with it
  EXPECT_EQ(ids(stored), (std::vector<TokenId>{256, 'a'}));
}

TEST(StoredVocabulary, UnusedTokensAreNoTokens) {
  StoredVocabulary stored = bytes_and({"[PAD256]"});
  stored.token_type[256] = static_cast<int32_t>(TokenKind::kUnused);
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_FALSE(tokenizer->contains(256));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{'a', 256, 'b'}), "ab");
}

StoredVocabulary all_of_kind(const std::vector<std::string>& tokens, TokenKind kind) {
  StoredVocabulary stored = bytes_and(tokens);
  std::fill(stored.token_type.begin() + 256, stored.token_type.end(), static_cast<int32_t>(kind));
  return stored;
}

using Ids = std::vector<TokenId>;

TEST(StoredVocabulary, ATextEndsWithTheStatedTokensAndThoseNamedSo) {
  StoredVocabulary stored =
      all_of_kind({"<|im_end|>", "<|return|>", "<|observation|>", "<|user|>", "<|tool_response>"},
                  TokenKind::kControl);
  stored.token_type[259] = static_cast<int32_t>(TokenKind::kUserDefined);
  stored.eos_token_id = 7;
  stored.eot_token_id = 256;
  stored.eom_token_id = 1000;
  stored.other_ends = {9, -1, 7, 1000};
  EXPECT_EQ(end_of_text_tokens(stored), (Ids{7, 9, 256, 257, 258, 260}));
}

// Converters call them user-defined or normal, or say nothing.
TEST(StoredVocabulary, AnEndByNameIsAControlTokenWhateverItsType) {
  const std::string text = "a<|im_end|>b";
  for (const TokenKind kind : {TokenKind::kNormal, TokenKind::kUserDefined, TokenKind::kControl,
                               static_cast<TokenKind>(0)}) {
    const auto tokenizer = make_tokenizer(all_of_kind({"<|im_end|>", "<x>"}, kind), "x");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
    EXPECT_EQ(tokenizer->end_tokens(), (Ids{256}));
    EXPECT_TRUE(tokenizer->is_special(256));
    EXPECT_EQ(*tokenizer->encode(text), (Ids{'a', 256, 'b'}));
    EXPECT_EQ(tokenizer->is_special(257), kind == TokenKind::kControl);
  }
}

TEST(StoredVocabulary, WhatANameMeansDependsOnTheOthers) {
  const auto ends = [](const std::vector<std::string>& tokens) {
    return end_of_text_tokens(all_of_kind(tokens, TokenKind::kUserDefined));
  };
  EXPECT_EQ(ends({"<|end|>", "<|return|>"}), (Ids{256, 257}));
  EXPECT_EQ(ends({"<|end|>", "<|return|>", "<|call|>"}), (Ids{257, 258}));
  EXPECT_EQ(ends({"<|end|>", "<|flush|>", "<|calls|>"}), (Ids{257, 258}));
  EXPECT_EQ(ends({"</s>", "<b>"}), (Ids{256}));
  EXPECT_EQ(ends({"</s>", "<|tool_response>"}), (Ids{257}));
  EXPECT_EQ(ends({"</s>", "<eos>", "<end_of_turn>"}), (Ids{257, 258}));
  EXPECT_EQ(ends({"im_end", "<|im_end|", "<|user|>", "<|observation|>"}), Ids());
}

// Qwen's vocabulary has </s> among its words.
TEST(StoredVocabulary, ANameThatMergesMakeIsOrdinaryText) {
  StoredVocabulary stored = all_of_kind({"</", "s>", "</s>"}, TokenKind::kNormal);
  stored.merges = {"< /", "s >", "</ s>"};
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->end_tokens(), Ids());
  EXPECT_FALSE(tokenizer->is_special(258));
  stored.eos_token_id = 258;
  EXPECT_EQ(make_tokenizer(stored, "x")->end_tokens(), (Ids{258}));
}

TEST(StoredVocabulary, WithoutTypesTheTokensNamedByIdAreControl) {
  StoredVocabulary stored = bytes_and({"<s>", "<stop>", "<u>"});
  stored.token_type.clear();
  stored.bos_token_id = 256;
  stored.eos_token_id = 257;
  stored.unknown_token_id = 258;
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("<s>a<stop><u>"), (Ids{256, 'a', 257, 258}));
  EXPECT_EQ(tokenizer->end_tokens(), (Ids{257}));
}

TEST(StoredVocabulary, AFileWithoutItsSplitsIsCutAsADefaultAndSaysSo) {
  for (const char* pre : {"", "default"}) {
    StoredVocabulary stored = bytes_and({"12"});
    stored.merges = {"1 2"};
    stored.pre = pre;
    const auto tokenizer = make_tokenizer(stored, "x");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
    EXPECT_EQ(*tokenizer->encode("1212"), (Ids{256, '1', '2'}));  // threes from the first
    EXPECT_NE(tokenizer->warning().find("tokenizer.ggml.pre"), std::string::npos);
    stored.architecture = "gptoss";
    EXPECT_EQ(make_tokenizer(stored, "x")->warning(), "");
  }
  EXPECT_EQ(make_tokenizer(bytes_and({}), "x")->warning(), "");
}

TEST(StoredVocabulary, MergesMustBeThereWhereTokensMerge) {
  StoredVocabulary stored = bytes_and({"ab"});
  stored.lacks_merges = true;
  EXPECT_NE(problem_of(stored).find("tokenizer.ggml.merges"), std::string::npos);
  stored.pre = "kimi-k2";
  EXPECT_TRUE(make_tokenizer(stored, "x").ok());
}

// SmolLM2 lacks 21 bytes, and an empty spelling is no token.
TEST(StoredVocabulary, BytesThatAreNoTokensAreLeftOut) {
  StoredVocabulary stored = bytes_and({"ac", "", ""});
  stored.merges = {"a c"};
  stored.pre = "smollm";
  stored.tokens['b'] = stored.tokens[0xF1] = "";
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("abc"), (Ids{256}));
  EXPECT_EQ(*tokenizer->encode("a\xF1\x80\x80\x80z"), (Ids{'a', 0x80, 0x80, 0x80, 'z'}));
  EXPECT_EQ(*tokenizer->encode("b"), Ids());
}

TEST(StoredVocabulary, AnAddedTokenSpelledAsABytesLetterIsThatByteToo) {
  StoredVocabulary stored = bytes_and({"\u00e9\u00ac"});
  stored.merges = {"\u00e9 \u00ac"};
  stored.token_type[0xE9] = stored.token_type[256] = static_cast<int32_t>(TokenKind::kUserDefined);
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("a\u00e9\u9b3cb"), (Ids{'a', 0xE9, 256, 0xBC, 'b'}));
  EXPECT_EQ(tokenizer->token_bytes(0xE9), "\u00e9");
}

// Some models with merges of bytes say in `pre` that theirs are of characters.
TEST(StoredVocabulary, APreTokenizerMayMeanThatSpacesAreSpelled) {
  StoredVocabulary stored{.model = "gpt2",
                          .pre = "sarvam-moe",
                          .tokens = {"<unk>", "<s>", "a", "\xE2\x96\x81",
                                     "\xE2\x96\x81"
                                     "a"},
                          .token_type = {2, 3, 1, 1, 1},
                          .merges = {"\xE2\x96\x81 a"},
                          .bos_token_id = 1};
  const auto ids = [](const StoredVocabulary& vocabulary) {
    const auto tokenizer = make_tokenizer(vocabulary, "x");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
    return *tokenizer->encode("a a", {.add_special_tokens = true});
  };
  EXPECT_EQ(ids(stored), (Ids{2, 4}));
  stored.pre = "gemma4";
  EXPECT_EQ(ids(stored), (Ids{1, 2, 4}));
}

// Mean nothing but the order from left to right.
TEST(StoredVocabulary, ScoresMayBeAbsent) {
  StoredVocabulary stored{.model = "llama",
                          .tokens = {"<unk>", "a", "b", "ab", "bb"},
                          .token_type = {2, 1, 1, 1, 1},
                          .add_bos_token = false,
                          .add_space_prefix = false};
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("abb"), (Ids{3, 2}));
}

// Two tokens make a third wherever their bytes do, whatever the list of merges says.
TEST(StoredVocabulary, RanksDecideWhereTheModelHasNoMerges) {
  StoredVocabulary stored = bytes_and({"bc", "ab", "abc", "<x>"});
  stored.token_type[259] = static_cast<int32_t>(TokenKind::kControl);
  stored.pre = "kimi-k2";
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("abcd"), (std::vector<TokenId>{258, 'd'}));
  EXPECT_EQ(*tokenizer->encode("abd<x>"), (std::vector<TokenId>{257, 'd', 259}));
}

}  // namespace
}  // namespace moeflux
