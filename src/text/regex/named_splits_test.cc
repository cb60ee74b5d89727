// Pieces and ids against those of the `tokenizers` library, written by
// tools/oracles/named_splits_golden.py.
#include "text/regex/named_splits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/golden_test_util.h"
#include "text/regex/pretokenizer.h"
#include "text/tokenizer.h"

namespace moeflux {
namespace {

std::vector<size_t> ends_of(const PreTokenizer& pre, const std::string& text) {
  std::vector<Regex::Matcher> matchers = pre.make_matchers();
  std::vector<std::string_view> pieces = {text};
  std::vector<std::string> prefixed;
  EXPECT_TRUE(pre.split(matchers, &pieces, &prefixed).ok());
  std::vector<size_t> ends;
  for (const std::string_view piece : pieces) {
    ends.push_back(static_cast<size_t>(piece.data() + piece.size() - text.data()));
  }
  return ends;
}

void expect_ends(const Result<PreTokenizer>& pre, const Json& texts, const Json& ends) {
  ASSERT_TRUE(pre.ok()) << pre.error().to_string();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(ends_of(*pre, texts[i].get<std::string>()), ends[i].get<std::vector<size_t>>())
        << texts[i];
  }
}

TEST(NamedSplits, CutAsTheLibraryDoesByTheModelsOwnFiles) {
  const Json golden = read_json(tokenizer_golden_folder() + "named_splits.json");
  for (const auto& [name, way] : golden["ways"].items()) {
    SCOPED_TRACE(name);
    const auto splits = find_named_splits(name);
    ASSERT_TRUE(splits.ok()) << splits.error().to_string();
    expect_ends(PreTokenizer::create(splits->patterns, splits->spelled_patterns), golden["texts"],
                way["ends"]);
    expect_ends(PreTokenizer::parse(way["pre_tokenizer"]), golden["texts"], way["ends"]);
  }
}

// Names from convert_hf_to_gguf.py and its older versions, but for those of vocabularies that are
// not byte-level.
constexpr const char* kConverterNames[] = {"a.x-4.0",
                                           "afmoe",
                                           "bailingmoe",
                                           "bailingmoe2",
                                           "bloom",
                                           "chameleon",
                                           "chatglm-bpe",
                                           "codeshell",
                                           "cohere2moe",
                                           "command-r",
                                           "dbrx",
                                           "deepseek-coder",
                                           "deepseek-llm",
                                           "deepseek-r1-qwen",
                                           "deepseek-v3",
                                           "default",
                                           "exaone",
                                           "exaone-moe",
                                           "exaone4",
                                           "f2llmv2",
                                           "falcon",
                                           "falcon-h1",
                                           "falcon3",
                                           "gemma4",
                                           "gigachat",
                                           "glm4",
                                           "glm5",
                                           "gpt-2",
                                           "gpt-4o",
                                           "gpt3-finnish",
                                           "granite-docling",
                                           "granite-embed-multi-311m",
                                           "granite-embed-multi-97m",
                                           "grok-2",
                                           "hunyuan",
                                           "hunyuan-dense",
                                           "hy_v4",
                                           "jais",
                                           "jais-2",
                                           "jina-v1-en",
                                           "jina-v2-code",
                                           "jina-v2-de",
                                           "jina-v2-es",
                                           "jina-v5-nano",
                                           "joyai-llm",
                                           "kanana2",
                                           "kimi-k2",
                                           "kormo",
                                           "laguna",
                                           "lfm2",
                                           "llada-moe",
                                           "llama-bpe",
                                           "llama-v3",
                                           "llama3",
                                           "llama4",
                                           "megrez",
                                           "mellum",
                                           "mellum2",
                                           "midm-2.0",
                                           "minerva-7b",
                                           "minicpm5",
                                           "minimax-m2",
                                           "modern-bert",
                                           "mpt",
                                           "olmo",
                                           "phi-2",
                                           "pixtral",
                                           "poro-chat",
                                           "qwen2",
                                           "qwen35",
                                           "refact",
                                           "roberta-bpe",
                                           "sarvam-moe",
                                           "seed-coder",
                                           "smaug-bpe",
                                           "smollm",
                                           "solar-open",
                                           "spark2_5",
                                           "stablelm2",
                                           "starcoder",
                                           "superbpe",
                                           "talkie",
                                           "tekken",
                                           "tiny_aya",
                                           "trillion",
                                           "ufakzeka",
                                           "viking",
                                           "youtu",
                                           ""};

TEST(NamedSplits, KnowEveryNameThatConvertersWrite) {
  for (const char* name : kConverterNames) {
    const auto splits = find_named_splits(name);
    ASSERT_TRUE(splits.ok()) << splits.error().to_string();
    EXPECT_TRUE(PreTokenizer::create(splits->patterns).ok()) << name;
    EXPECT_EQ(splits->patterns.empty(), splits->spells_spaces) << name;
  }
}

TEST(NamedSplits, ANameThatNobodyWritesIsNamedWithItsKey) {
  const auto splits = find_named_splits("whitespace");
  ASSERT_FALSE(splits.ok());
  EXPECT_EQ(splits.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(splits.error().message().find("tokenizer.ggml.pre is \"whitespace\""),
            std::string::npos)
      << splits.error().message();
}

// Patterns that look ahead from each digit would take hours.
TEST(NamedSplits, AMillionDigitsAreCutInTimeLinearInThem) {
  const std::string digits(1'000'000, '7');
  for (const char* name : {"tiny_aya", "superbpe", "afmoe", "deepseek-v3"}) {
    const auto splits = find_named_splits(name);
    ASSERT_TRUE(splits.ok());
    const auto pre = PreTokenizer::create(splits->patterns, splits->spelled_patterns);
    ASSERT_TRUE(pre.ok());
    const std::vector<size_t> ends = ends_of(*pre, digits);
    ASSERT_EQ(ends.size(), 333334u) << name;
    EXPECT_EQ(ends[0], std::string(name) == "deepseek-v3" ? 3u : 1u) << name;
    EXPECT_GT(ends_of(*pre, digits + "a").size(), 1u) << name;
  }
}

TEST(PreTokenizer, BehavioursAreThoseOfTheLibrary) {
  const auto ends = [](const char* behavior, bool invert, const std::string& text) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"String", "-"}}},
                        {"behavior", behavior},
                        {"invert", invert}};
    const Json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const auto pre = PreTokenizer::parse(
        {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}});
    EXPECT_TRUE(pre.ok()) << pre.error().to_string();
    return ends_of(*pre, text);
  };
  using Ends = std::vector<size_t>;
  EXPECT_EQ(ends("Isolated", false, "the-final--countdown"), (Ends{3, 4, 9, 10, 11, 20}));
  EXPECT_EQ(ends("Removed", false, "the-final--countdown"), (Ends{3, 9, 20}));
  EXPECT_EQ(ends("Removed", true, "the-final--countdown"), (Ends{4, 10, 11}));
  EXPECT_EQ(ends("Contiguous", false, "the-final--countdown"), (Ends{3, 4, 9, 11, 20}));
  EXPECT_EQ(ends("MergedWithPrevious", false, "the-final--countdown"), (Ends{4, 10, 11, 20}));
  EXPECT_EQ(ends("MergedWithNext", false, "the-final--countdown"), (Ends{3, 9, 10, 20}));
}

TEST(Tokenizer, BytesThatAreNoTokensBecomeWhatTheLibraryMakesOfThem) {
  const Json golden = read_json(tokenizer_golden_folder() + "missing_bytes.json");
  for (const auto& [name, expected] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::parse(expected["tokenizer"].dump(), "t");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto ids = tokenizer->encode(golden["texts"][i].get<std::string>());
      ASSERT_TRUE(ids.ok()) << ids.error().to_string();
      // The library fails where the unknown token's name is no token; here it stands for nothing.
      const Json& wanted =
          expected["ids"][i].is_null() ? golden["cases"]["left out"]["ids"][i] : expected["ids"][i];
      EXPECT_EQ(*ids, wanted.get<std::vector<TokenId>>()) << golden["texts"][i];
    }
  }
}

}  // namespace
}  // namespace moeflux
