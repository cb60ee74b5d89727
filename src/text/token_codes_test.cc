// Codes of tokens: who shares one, and that they are those of a whole vocabulary.
#include "text/token_codes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "text/encoding/byte_alphabet.h"
#include "text/encoding/unicode.h"

namespace moeflux {
namespace {

Tokenizer tokenizer_of(const std::vector<std::string>& tokens, const std::string& added) {
  Json vocab = Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocab[spelling_of_bytes(tokens[i])] = i;
  Json token = {{"id", tokens.size()},  {"content", added}, {"special", true},
                {"single_word", false}, {"lstrip", false},  {"rstrip", false},
                {"normalized", false}};
  const Json file = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}},
                     {"added_tokens", Json::array({token})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                     {"decoder", {{"type", "ByteLevel"}}}};
  auto parsed = Tokenizer::parse(file.dump(), "tokenizer.json");
  EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
  return std::move(parsed).value();
}

// As the `tokenizers` library normalises them: NFKC, NFD, StripAccents, Lowercase, runs of white
// space as one space, Strip, but for a token that is a space alone.
TEST(TokenCodes, ThoseOfLikeTextAreOne) {
  const std::vector<std::string> tokens = {
      "the",  " The", "THE\n",        "caf\xC3\xA9", "Cafe",     " ",    "\t\n", "\xC2\xA0",
      "\x0B", "\xC3", "\xEF\xBC\xA1", "a",           "\xC3\x83", "a  b", "A\tb", "\xCC\x81"};
  // A part of a character has its spelling, which for one byte is that of a letter in capitals.
  const std::vector<int32_t> expected = {0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 5, 5, 5, 6, 6, 7, 8};
  EXPECT_EQ(token_codes(tokenizer_of(tokens, "<END>")), expected);
}

TEST(TokenCodes, AddedTokensFoldToo) {
  const std::vector<int32_t> codes = token_codes(tokenizer_of({"a", "<end>"}, "<END>"));
  EXPECT_EQ(codes, (std::vector<int32_t>{0, 1, 1}));
}

TEST(Unicode, FoldsLetters) {
  EXPECT_EQ(fold_letters("\xC3\x89T\xC3\x89"), "ete");
  EXPECT_EQ(fold_letters("\xEF\xAC\x81"), "fi");  // a ligature
  EXPECT_EQ(fold_letters("\xC4\xB0"), "i");       // with a dot above
  EXPECT_EQ(fold_letters("\xE2\x91\xA0"), "1");   // in a circle
  EXPECT_EQ(fold_letters("\xE3\x80\x80"), " ");   // wide
  EXPECT_EQ(fold_letters(""), "");
}

}  // namespace
}  // namespace moeflux
