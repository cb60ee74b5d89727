// Refusals of parse_tiktoken(), its added tokens, and texts and tables that would hurt a careless
// tokenizer.
#include "text/formats/tiktoken.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "text/encoding/base64.h"
#include "text/formats/tiktoken_ranks.h"

namespace moeflux {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = i; j < i + 3; ++j) {
      word = (word << 8) | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : kAlphabet[(word >> (18 - 6 * j)) & 63u];
    }
  }
  return text;
}

std::string line_of(std::string_view bytes, size_t rank) {
  return formatted("{} {}\n", encode_base64(bytes), rank);
}

// The single bytes in 256 lines, then these.
std::string table_of(const std::vector<std::string>& tokens) {
  std::string table;
  for (size_t byte = 0; byte < 256; ++byte) {
    table += line_of(std::string(1, static_cast<char>(byte)), byte);
  }
  for (size_t i = 0; i < tokens.size(); ++i) table += line_of(tokens[i], 256 + i);
  return table;
}

Tokenizer load_ranks(const std::vector<std::string>& tokens, std::string_view config = "{}") {
  Result<Tokenizer> tokenizer = parse_tiktoken(table_of(tokens), config, "t");
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().to_string());
  return std::move(tokenizer).value();
}

void expect_refusal(std::string_view table, std::string_view config, ErrorCode code,
                    std::string_view named) {
  const auto tokenizer = parse_tiktoken(table, config, "kimi/tiktoken.model");
  ASSERT_FALSE(tokenizer.ok()) << named;
  const Error& error = tokenizer.error();
  EXPECT_EQ(error.code(), code) << error.to_string();
  EXPECT_NE(error.message().find(named), std::string::npos) << named << ": " << error.to_string();
  EXPECT_TRUE(error.message().starts_with("kimi/tiktoken.model: ")) << error.message();
  EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
}

TEST(Base64, DecodesWhatAnEncoderWritesAndNothingElse) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8="), "fo");
  EXPECT_EQ(decode_base64("Zm9v"), "foo");
  EXPECT_EQ(decode_base64("Zm9vYg=="), "foob");
  EXPECT_EQ(decode_base64("AP/+"), std::string_view("\0\xFF\xFE", 3));
  for (const char* text : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "=",
                           "Zg==Zg==", "Zm9v\n", "Zm-v", "Zm_v", " Zg=", "Zm9\xFF"}) {
    EXPECT_FALSE(decode_base64(text).has_value()) << text;
  }
}

TEST(TiktokenParse, RefusesBrokenLinesByNumber) {
  constexpr auto kBad = ErrorCode::kCorruption;
  const std::string table = table_of({"ab"});  // 257 lines
  const std::vector<std::pair<std::string, std::string>> last_lines = {
      {"YWJj", "line 258: \"YWJj\", expected base64, a space and a rank"},
      {"YWJj ", "line 258: \"YWJj \""},
      {" 257", "line 258: \"\" is not the base64"},
      {"YWJj  257", "line 258"},
      {"YWJj 257 ", "line 258"},
      {"YWJj\t257", "line 258"},
      {"YWJj -1", "line 258: \"YWJj -1\""},
      {"YWJj +257", "line 258"},
      {"YWJj 0x101", "line 258"},
      {"YWJj 99999999999999999999", "line 258"},
      {"YWJ 257", "line 258: \"YWJ\" is not the base64"},
      {"YW*j 257", "line 258: \"YW*j\""},
      {"\xFF\x01\x7F 257", "line 258: \"???\""},
      {"YWJj 258", "line 258: rank 258 among 258 tokens: a lower rank is missing"},
      {"YWJj 97", "line 258: rank 97 was given to line 98"},
      {"YWI= 257", "line 258: the same token as in line 257"},
      {"\n\nYWI= 257\n", "line 260: the same token as in line 257"},
  };
  for (const auto& [line, named] : last_lines) expect_refusal(table + line, "{}", kBad, named);
  const std::string long_line = line_of(std::string(kTiktokenBytesMax + 1, 'x'), 257);
  expect_refusal(table + long_line, "{}", ErrorCode::kUnsupported, "line 258: a token of 1025");
}

TEST(TiktokenParse, RefusesTablesWithoutASingleByte) {
  expect_refusal("", "{}", ErrorCode::kCorruption, "0x00");
  std::string table = table_of({});
  const size_t at = table.find("YQ== 97\n");
  table.replace(at, 8, "YWE= 97\n");  // "aa" in place of "a"
  expect_refusal(table, "{}", ErrorCode::kCorruption, "0x61");
}

TEST(TiktokenParse, RefusesConfigurationsThatContradictTheTable) {
  constexpr auto kBad = ErrorCode::kCorruption;
  const std::string table = table_of({"ab"});
  const auto decoder = [](std::string_view entries) {
    return formatted("{{\"added_tokens_decoder\":{{{}}}}}", entries);
  };
  const std::vector<std::pair<std::string, std::string>> configs = {
      {"", "tokenizer_config.json"},
      {"[]", "tokenizer_config.json"},
      {"{\"added_tokens_decoder\":[]}", "added_tokens_decoder"},
      {decoder(R"("256":{"content":"x"})"), "\"256\", expected 257 to 512"},
      {decoder(R"("513":{"content":"x"})"), "\"513\", expected 257 to 512"},
      {decoder(R"("-1":{"content":"x"})"), "\"-1\""},
      {decoder(R"("":{"content":"x"})"), "id \"\""},
      {decoder(R"("257 ":{"content":"x"})"), "\"257 \""},
      {decoder(R"("257":"x")"), "content"},
      {decoder(R"("257":{"content":5})"), "content"},
      {decoder(R"("257":{"content":""})"), "257 has no content"},
      {decoder(R"("257":{"content":"x","special":"yes"})"), "special"},
      {decoder(R"("257":{"content":"x"},"0257":{"content":"y"})"), "257 is given twice"},
      {decoder(R"("257":{"content":"x"},"259":{"content":"x"})"), "257 and 259 are both \"x\""},
      {decoder(R"("257":{"content":"<|reserved_token_300|>"})"), "257 and 300"},
  };
  for (const auto& [config, named] : configs) expect_refusal(table, config, kBad, named);
}

TEST(TiktokenParse, LinesMayComeInAnyOrderAndEndInCrLf) {
  std::string table = "YWI= 256\r\n\r\n";
  for (size_t byte = 256; byte-- > 0;) {
    table += line_of(std::string(1, static_cast<char>(byte)), byte);
  }
  table.pop_back();
  const auto tokenizer = parse_tiktoken(table, "{}", "t");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("abc"), (std::vector<TokenId>{256, 'c'}));
}

TEST(Tiktoken, ReservedIdsAreSpecialTokens) {
  const Tokenizer tokenizer = load_ranks({"ab"}, R"({"added_tokens_decoder":{
      "257":{"content":"[BOS]","special":true}, "258":{"content":"<think>","special":false}}})");
  EXPECT_EQ(tokenizer.vocab_size(), 257 + kTiktokenReservedCount);
  EXPECT_EQ(tokenizer.find("[BOS]"), 257);
  EXPECT_EQ(tokenizer.find("<think>"), 258);
  EXPECT_EQ(tokenizer.find("<|reserved_token_512|>"), 512);
  EXPECT_TRUE(tokenizer.is_special(257));
  EXPECT_FALSE(tokenizer.is_special(258));
  EXPECT_TRUE(tokenizer.is_special(512));
  const std::vector<TokenId> ids = {257, 256, 258, 'c', 259};
  EXPECT_EQ(*tokenizer.encode("[BOS]ab<think>c<|reserved_token_259|>"), ids);
  EXPECT_EQ(*tokenizer.encode("ab", {.add_special_tokens = true}), std::vector<TokenId>{256});
  EXPECT_EQ(tokenizer.decode(ids), "[BOS]ab<think>c<|reserved_token_259|>");
  EXPECT_EQ(tokenizer.decode(ids, {.skip_special = true}), "ab<think>c");
}

TEST(Tiktoken, AnAddedTokenThatSpellsARankedOneIsAnother) {
  const Tokenizer tokenizer =
      load_ranks({"ab"}, R"({"added_tokens_decoder":{"257":{"content":"ab","special":true}}})");
  EXPECT_EQ(*tokenizer.encode("ab"), std::vector<TokenId>{257});
  EXPECT_EQ(*tokenizer.encode("ab", {.match_added_tokens = false}), std::vector<TokenId>{256});
}

TEST(Tiktoken, AMergeMayEndInALowerRankThanItsHalves) {
  const Tokenizer tokenizer =
      load_ranks({"abc", "bc"});  // "abc" can only be "a" and the later "bc"
  EXPECT_EQ(*tokenizer.encode("xabc"), (std::vector<TokenId>{'x', 256}));
}

TEST(Tiktoken, APieceThatIsATokenNeedsNoMerges) {
  const Tokenizer tokenizer = load_ranks({"hello"});
  EXPECT_EQ(*tokenizer.encode("hello"), std::vector<TokenId>{256});
  EXPECT_EQ(tokenizer.encode("hellos")->size(), 6u);
}

// None of these may take quadratic time: each would then take minutes.
TEST(Tiktoken, LongRunsOfOneKindStayCheap) {
  std::vector<std::string> tokens;
  for (const char* unit : {"a", " ", "\xE6\xBC\xA2"}) {
    std::string token = unit;
    for (int i = 0; i < 7; ++i) tokens.push_back(token += token);
  }
  const Tokenizer tokenizer = load_ranks(tokens);
  for (const std::string unit : {"a", "A", " ", "\n", "1", "!", "\xE6\xBC\xA2", "ab", " \n",
                                 "\xCC\x81", "'s", "<|reserved_token_300|>", "<"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok()) << unit << ": " << ids.error().to_string();
    EXPECT_EQ(tokenizer.decode(*ids), text) << unit;
  }
}

TEST(Tiktoken, TablesOfTooManyPairsAreRefused) {
  // Every run of up to 1,024 "a" can be halved at every place; so can runs ending in another
  // letter.
  std::vector<std::string> tokens;
  for (size_t n = 2; n <= kTiktokenBytesMax; ++n) tokens.emplace_back(n, 'a');
  for (char last = 'b'; last <= 'i'; ++last) {
    for (size_t n = 1; n < kTiktokenBytesMax; ++n) tokens.push_back(std::string(n, 'a') + last);
  }
  expect_refusal(table_of(tokens), "{}", ErrorCode::kResourceExhausted, "4194304 pairs");
}

}  // namespace
}  // namespace moeflux
