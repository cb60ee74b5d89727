// Refusals of parse() by name, and texts that would hurt a careless tokenizer.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/json.h"

namespace moeflux {
namespace {

std::string read_golden(const std::string& name) {
  const std::string path =
      std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/tokenizer/" + name + ".tokenizer.json";
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Json spec_of(const std::string& name) {
  Result<Json> spec = parse_json(read_golden(name), name);
  EXPECT_TRUE(spec.ok());
  return std::move(spec).value();
}

Tokenizer load(const std::string& name) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(read_golden(name), name);
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().to_string());
  return std::move(tokenizer).value();
}

struct Refusal {
  std::function<void(Json&)> change;
  ErrorCode code;
  std::string named;
};

void expect_refusals(const std::string& file, const std::vector<Refusal>& cases) {
  for (const Refusal& refusal : cases) {
    Json spec = spec_of(file);
    refusal.change(spec);
    const auto tokenizer = Tokenizer::parse(spec.dump(), "changed.json");
    ASSERT_FALSE(tokenizer.ok()) << refusal.named;
    EXPECT_EQ(tokenizer.error().code(), refusal.code) << tokenizer.error().to_string();
    EXPECT_NE(tokenizer.error().message().find(refusal.named), std::string::npos)
        << tokenizer.error().to_string();
    EXPECT_TRUE(tokenizer.error().message().starts_with("changed.json: "));
  }
}

TEST(TokenizerParse, RefusesByNameWhatItDoesNotHonour) {
  constexpr auto kNo = ErrorCode::kUnsupported;
  constexpr auto kBad = ErrorCode::kCorruption;
  const auto split = [](Json& s) -> Json& { return s["pre_tokenizer"]["pretokenizers"][0]; };
  const std::vector<Refusal> cases = {
      {[](Json& s) { s["model"]["type"] = "Unigram"; }, kNo, "Unigram"},
      {[](Json& s) { s["model"]["type"] = "WordPiece"; }, kNo, "WordPiece"},
      {[](Json& s) { s["model"]["continuing_subword_prefix"] = "##"; }, kNo, "continuing_sub"},
      {[](Json& s) { s["model"]["end_of_word_suffix"] = "</w>"; }, kNo, "end_of_word_suffix"},
      {[](Json& s) { s["model"]["dropout"] = 0.1; }, kNo, "dropout"},
      {[](Json& s) { s["model"]["merges"].push_back("zz zz"); }, kBad, "\"zz\" \"zz\""},
      {[](Json& s) { s["model"]["merges"].push_back("a b c"); }, kBad, "a b c"},
      {[](Json& s) { s["model"]["merges"].push_back({"a"}); }, kBad, "merge"},
      {[](Json& s) { s["model"]["vocab"]["new"] = 5; }, kBad, "id 5"},
      {[](Json& s) { s["model"]["vocab"]["new"] = -1; }, kBad, "-1"},
      {[](Json& s) { s["model"]["vocab"]["new"] = int64_t{1} << 40; }, kBad, "1099511627776"},
      {[](Json& s) { s["model"]["vocab"]["new"] = "5"; }, kBad, "vocab"},
      {[](Json& s) {
         s["normalizer"] = {{"type", "NFKC"}};
       },
       kNo, "NFKC"},
      {[](Json& s) {
         s["decoder"] = {{"type", "Metaspace"}};
       },
       kNo, "Metaspace"},
      {[](Json& s) { s["decoder"] = nullptr; }, kNo, "decoder"},
      {[](Json& s) { s["pre_tokenizer"] = nullptr; }, kNo, "pre_tokenizer"},
      {[](Json& s) {
         s["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       kNo, "Whitespace"},
      {[](Json& s) { s["pre_tokenizer"]["pretokenizers"].erase(1); }, kNo, "ByteLevel"},
      {[=](Json& s) { split(s)["behavior"] = "Merged"; }, kNo, "\"Merged\""},
      {[=](Json& s) { split(s)["behavior"] = nullptr; }, kNo, "behavior missing"},
      {[=](Json& s) {
         split(s) = {{"type", "ByteLevel"}};
       },
       kNo, "two ByteLevel"},
      {[=](Json& s) {
         split(s)["pattern"] = {{"Regex", "\\B"}};
       },
       kNo, "\\B"},
      {[=](Json& s) { split(s)["pattern"] = 3; }, kNo, "pattern"},
      {[](Json& s) {
         s["post_processor"] = {{"type", "BertProcessing"}};
       },
       kNo, "BertProcessing"},
      {[](Json& s) { s["added_tokens"][0]["id"] = 77; }, kBad, "77"},
      {[](Json& s) { s["added_tokens"][0]["lstrip"] = "yes"; }, kBad, "lstrip"},
      {[](Json& s) { s["added_tokens"][0].erase("content"); }, kBad, "content"},
      {[](Json& s) { s.erase("model"); }, kNo, "model"},
  };
  expect_refusals("qwen2", cases);
}

TEST(TokenizerParse, RefusesByNameRulesOfCharactersItDoesNotHonour) {
  constexpr auto kNo = ErrorCode::kUnsupported;
  constexpr auto kBad = ErrorCode::kCorruption;
  const auto steps = [](Json& s) -> Json& { return s["decoder"]["decoders"]; };
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}};
  const auto with = [=](const char* key, const Json& value) {
    Json spec = metaspace;
    spec[key] = value;
    return [=](Json& s) { s["pre_tokenizer"] = spec; };
  };
  const std::vector<Refusal> cases = {
      {[](Json& s) { s["model"]["byte_fallback"] = false; }, kNo, "byte_fallback"},
      {[](Json& s) { s["model"]["ignore_merges"] = true; }, kNo, "ignore_merges"},
      {[](Json& s) { s["model"]["merges"].push_back("zz zz"); }, kBad, "\"zz\" \"zz\""},
      {[](Json& s) { s["model"]["vocab"]["new"] = 5; }, kBad, "id 5"},
      {[](Json& s) { s["model"]["vocab"]["new"] = -1; }, kBad, "-1"},
      {[](Json& s) { s["added_tokens"][0]["id"] = 77; }, kBad, "77"},
      {[](Json& s) {
         s["normalizer"] = {{"type", "NFKC"}};
       },
       kNo, "NFKC"},
      {[](Json& s) { s["normalizer"]["normalizers"][0]["prepend"] = "_"; }, kNo, "Prepend"},
      {[](Json& s) { s["normalizer"]["normalizers"][1]["content"] = "_"; }, kNo, "Replace"},
      {[](Json& s) { s["normalizer"]["normalizers"].erase(1); }, kNo, "without a Replace"},
      {[](Json& s) {
         auto& list = s["normalizer"]["normalizers"];
         list.push_back(list[0]);
       },
       kNo, "once"},
      {[](Json& s) {
         s["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       kNo, "Whitespace"},
      {[](Json& s) {
         s["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"String", "e"}}}, {"behavior", "Isolated"}};
       },
       kNo, "Split"},
      {with("replacement", "_"), kNo, "U+2581"},
      {with("prepend_scheme", "last"), kNo, "last"},
      {with("split", 1), kBad, "split"},
      {with("add_prefix_space", false), kBad, "add_prefix_space"},
      {[=](Json& s) {
         s["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {metaspace, metaspace}}};
       },
       kNo, "one Metaspace"},
      {[](Json& s) { s["decoder"] = nullptr; }, kNo, "decoder"},
      {[](Json& s) {
         s["decoder"] = {{"type", "Metaspace"}};
       },
       kNo, "Metaspace"},
      {[=](Json& s) { steps(s).erase(2); }, kNo, "decoder"},
      {[=](Json& s) { steps(s)[0]["content"] = "_"; }, kNo, "decoder"},
      {[=](Json& s) { steps(s)[3]["start"] = 2; }, kNo, "decoder"},
      {[=](Json& s) { steps(s)[3]["stop"] = 1; }, kNo, "decoder"},
  };
  expect_refusals("llama2", cases);
}

// Every byte's character is a token there.
TEST(TokenizerParse, ByteFallbackMeansNothingWithByteLevel) {
  Json spec = spec_of("qwen2");
  spec["model"]["byte_fallback"] = true;
  const auto tokenizer = Tokenizer::parse(spec.dump(), "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  const std::string text = "The quick \xF0\x9F\x98\x80 fox";
  EXPECT_EQ(*tokenizer->encode(text), *load("qwen2").encode(text));
}

TEST(TokenizerParse, AddPrefixSpaceOfOlderFilesAgreesWithTheScheme) {
  Json spec = spec_of("mixtral");
  spec["pre_tokenizer"]["add_prefix_space"] = true;
  const auto same = Tokenizer::parse(spec.dump(), "t");
  ASSERT_TRUE(same.ok()) << same.error().to_string();
  EXPECT_EQ(*same->encode("the end"), *load("mixtral").encode("the end"));
  spec["pre_tokenizer"]["prepend_scheme"] = "never";
  spec["pre_tokenizer"]["add_prefix_space"] = false;
  const auto never = Tokenizer::parse(spec.dump(), "t");
  ASSERT_TRUE(never.ok()) << never.error().to_string();
  EXPECT_NE(*never->encode("the end"), *load("mixtral").encode("the end"));
  EXPECT_EQ(never->decode(*never->encode("the end")), "the end");
}

TEST(TokenizerParse, TextThatIsNotJsonIsCorruption) {
  for (const char* text :
       {"", "{", "[]", "nul", "{\"a\":1,\"a\":2}", "{\"model\":{\"vocab\":{\"a\":[]}}}",
        "{\"model\":{\"merges\":[[[]]]}}", "\xFF"}) {
    const auto tokenizer = Tokenizer::parse(text, "t");
    ASSERT_FALSE(tokenizer.ok()) << text;
    EXPECT_EQ(tokenizer.error().code(), ErrorCode::kCorruption) << tokenizer.error().to_string();
  }
  EXPECT_FALSE(Tokenizer::parse(std::string(100'000, '['), "deep").ok());
}

TEST(TokenizerParse, BothSpellingsOfMergesMeanTheSame) {
  Json spec = spec_of("qwen2");
  for (Json& merge : spec["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const auto respelled = Tokenizer::parse(spec.dump(), "t");
  ASSERT_TRUE(respelled.ok());
  const std::string text = "The quick brown fox, l'\xC3\xA9t\xC3\xA9 1234";
  EXPECT_EQ(*respelled->encode(text), *load("qwen2").encode(text));
}

TEST(TokenizerParse, AStringPatternIsLiteral) {
  Json spec = spec_of("qwen2");
  spec["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", "h."}};
  const auto tokenizer = Tokenizer::parse(spec.dump(), "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  const auto the = tokenizer->find(" the");
  ASSERT_TRUE(the.has_value());
  EXPECT_EQ(*tokenizer->encode(" the"), std::vector<TokenId>{*the});
  EXPECT_EQ(tokenizer->encode("xh.x")->size(), 4u);
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = load("qwen2");
  const auto end = tokenizer.find("<|im_end|>");
  const auto think = tokenizer.find("<think>");
  ASSERT_TRUE(end && think);
  EXPECT_TRUE(tokenizer.is_special(*end));
  EXPECT_FALSE(tokenizer.is_special(*think));
  EXPECT_EQ(tokenizer.token_bytes(*think), "<think>");
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.find(" the")), " the");
  EXPECT_EQ(tokenizer.token_text(*tokenizer.find("\xE2")), "\xEF\xBF\xBD");
  EXPECT_FALSE(tokenizer.find("no such token").has_value());
  EXPECT_EQ(tokenizer.added_tokens().size(), 15u);
  for (const TokenId id : {-1, tokenizer.vocab_size(), 1 << 30}) {
    EXPECT_FALSE(tokenizer.contains(id));
    EXPECT_FALSE(tokenizer.is_special(id));
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{id, *think}), "<think>");
  }
}

TEST(Tokenizer, TextThatGoesOnKeepsTheSpaceThatAStripWouldTake) {
  const Tokenizer tokenizer = load("llama2");
  const auto ids = tokenizer.encode("the end");
  ASSERT_TRUE(ids.ok()) << ids.error().to_string();
  EXPECT_EQ(tokenizer.decode(*ids), "the end");
  EXPECT_EQ(tokenizer.decode(*ids, {.continues_text = true}), " the end");
  const Tokenizer gemma = load("gemma");
  EXPECT_EQ(gemma.decode(*gemma.encode(" the end")), " the end");
}

TEST(Tokenizer, InertTextSpellsOutSpecialTokensAndNoOthers) {
  const Tokenizer tokenizer = load("qwen2");
  const std::string text = "a<|im_end|><think>";
  const auto inert = tokenizer.encode(text, {.match_added_tokens = false});
  ASSERT_TRUE(inert.ok());
  EXPECT_GT(inert->size(), 3u);
  EXPECT_EQ(inert->back(), tokenizer.encode("<think>")->front());
  EXPECT_EQ(tokenizer.decode(*inert, {.skip_special = true}), text);
  EXPECT_EQ(tokenizer.encode(text)->size(), 3u);
}

// As in DeepSeek's vocabulary.
TEST(Tokenizer, LettersThatAreAddedTokensAreReadWithoutSpecialTokensToo) {
  const Tokenizer tokenizer = load("letters");
  const std::vector<TokenId> expected = {70, 255, 104, 114, 101, 114};
  EXPECT_EQ(*tokenizer.encode("F\u00fchrer"), expected);
  EXPECT_EQ(*tokenizer.encode("F\u00fchrer", {.match_added_tokens = false}), expected);
  EXPECT_EQ(tokenizer.encode("<|eos|>")->size(), 1u);
  EXPECT_EQ(tokenizer.encode("<|eos|>", {.match_added_tokens = false})->size(), 7u);
}

// The byte E9 has that spelling, and the merge of E9 and AC. Ids are those of the `tokenizers`
// library 0.23.3.
TEST(Tokenizer, AnAddedTokenSpelledAsABytesLetterIsThatByteToo) {
  Json spec = spec_of("letters");
  spec["model"]["vocab"]["\u00e9\u00ac"] = 259;
  spec["model"]["merges"].push_back({"\u00e9", "\u00ac"});
  Json added = spec["added_tokens"].back();
  for (const auto& [id, content] : {std::pair(231, "\u00e9"), std::pair(259, "\u00e9\u00ac")}) {
    added["id"] = id;
    added["content"] = content;
    spec["added_tokens"].push_back(added);
  }
  const auto tokenizer = Tokenizer::parse(spec.dump(), "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("a\u00e9\u9b3cb"), (std::vector<TokenId>{97, 231, 259, 188, 98}));
  EXPECT_EQ(tokenizer->token_bytes(231), "\u00e9");
}

TEST(Tokenizer, InertRangesSpellOutWhatTheyTouchAndNothingElse) {
  const Tokenizer tokenizer = load("qwen2");
  const std::string text = "<|im_end|>a<|im_end|><think>";
  const auto all = *tokenizer.encode(text);
  for (const ByteRange range : {ByteRange{11, 21}, ByteRange{11, 12}, ByteRange{15, 17},
                                ByteRange{10, 21}, ByteRange{20, 21}}) {
    const auto ids = tokenizer.encode(text, {.inert_ranges = {&range, 1}});
    ASSERT_TRUE(ids.ok());
    EXPECT_GT(ids->size(), all.size());
    EXPECT_EQ(ids->front(), all.front());
    EXPECT_EQ(ids->back(), all.back());
    EXPECT_EQ(std::count(ids->begin(), ids->end(), all.front()), 1);
    EXPECT_EQ(tokenizer.decode(*ids), text);
  }
}

// A token that is looked for after normalisation, where what stands before it has become shorter.
TEST(Tokenizer, InertRangesMoveWithNormalisation) {
  const Tokenizer tokenizer = load("qwen2");
  constexpr TokenId kToken = 711;  // [\u0151]
  const std::string marker = "[\xC5\x91]";
  for (const std::string before : {"", "e\xCC\x81", "e\xCC\x81 x", "\xE2\x84\xAB\xCC\x81"}) {
    std::string text;
    std::vector<ByteRange> ranges;
    for (int i = 0; i < 30; ++i) {
      text += before;
      ranges.push_back({text.size(), text.size() + marker.size()});
      text += marker + before + marker + "e\xCC\x81";
    }
    const auto ids = tokenizer.encode(text, {.inert_ranges = ranges});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(std::count(ids->begin(), ids->end(), kToken), 30) << before;
    const auto trusted = tokenizer.encode(text);
    EXPECT_EQ(std::count(trusted->begin(), trusted->end(), kToken), 60) << before;
  }
}

TEST(Tokenizer, ARangeThatEndsInsideAComposedCharacterGrowsOverIt) {
  const Tokenizer tokenizer = load("qwen2");
  const std::string unit = "e\xCC\x81";  // the range ends behind the e
  std::string text;
  std::vector<ByteRange> ranges;
  for (int i = 0; i < 30; ++i, text += unit) ranges.push_back({text.size(), text.size() + 1});
  const std::string marker = "[\xC5\x91]";
  ranges.push_back({text.size(), text.size() + marker.size()});
  text += marker + "-" + marker;
  const auto ids = tokenizer.encode(text, {.inert_ranges = ranges});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), TokenId{711}), 1);
  EXPECT_EQ(ids->back(), 711);
}

TEST(Tokenizer, InertRangesAreOfValidTextOnly) {
  const ByteRange range{0, 1};
  EXPECT_FALSE(load("qwen2").encode("a\xFF", {.inert_ranges = {&range, 1}}).ok());
}

// None of these may take quadratic time: each would then take minutes.
TEST(Tokenizer, LongRunsOfOneKindStayCheap) {
  for (const char* name :
       {"gpt2", "llama3", "qwen35", "deepseek", "o200k", "kimi", "llama2", "gemma"}) {
    const Tokenizer tokenizer = load(name);
    for (const std::string unit : {"a", "A", " ", "\n", "1", "!", "\xE6\xBC\xA2", "ab", " \n",
                                   "\xCC\x81", "'s", "<|im_end|>", "<"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      const auto ids = tokenizer.encode(text);
      ASSERT_TRUE(ids.ok()) << name << " " << unit << ": " << ids.error().to_string();
      EXPECT_EQ(tokenizer.decode(*ids), text) << name << " " << unit;
    }
  }
}

}  // namespace
}  // namespace moeflux
