// Contents of a tokenizer.model, by messages made here field by field.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "text/formats/sentencepiece_model.h"
#include "text/formats/stored_vocabulary.h"
#include "text/golden_test_util.h"

namespace moeflux {
namespace {

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7F)));
  out.push_back(static_cast<char>(value));
  return out;
}

std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }

std::string bytes(uint32_t field, const std::string& value) {
  return varint((field << 3) | 2) + varint(value.size()) + value;
}

std::string piece(const std::string& text, float score, TokenKind kind) {
  const auto bits = std::bit_cast<uint32_t>(score);
  std::string fixed;
  for (uint32_t i = 0; i < 4; ++i) fixed.push_back(static_cast<char>(bits >> (8 * i)));
  return bytes(
      1, bytes(1, text) + varint((2 << 3) | 5) + fixed + number(3, static_cast<uint64_t>(kind)));
}

// <unk> <s> </s> a b ▁ ab
std::string small_model() {
  return piece("<unk>", 0, TokenKind::kUnknown) + piece("<s>", 0, TokenKind::kControl) +
         piece("</s>", 0, TokenKind::kControl) + piece("a", -1, TokenKind::kNormal) +
         piece("b", -2, TokenKind::kNormal) + piece("\xE2\x96\x81", -3, TokenKind::kNormal) +
         piece("ab", -4, TokenKind::kNormal);
}

const std::string kBpe = bytes(2, number(3, 2));
const std::string kOwnSpaces = bytes(3, number(4, 0));

Tokenizer load_pieces(const std::string& model, const std::string& config = "") {
  Result<Tokenizer> tokenizer = parse_sentencepiece(model, config, "x");
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().to_string());
  return std::move(tokenizer).value();
}

std::string problem_of(const std::string& model, const std::string& config = "") {
  const auto tokenizer = parse_sentencepiece(model, config, "m");
  EXPECT_FALSE(tokenizer.ok());
  return tokenizer.ok() ? "" : tokenizer.error().message();
}

using Ids = std::vector<TokenId>;

TEST(SentencePiece, OtherModelsAreNamed) {
  EXPECT_EQ(problem_of(small_model()), "m: model_type UNIGRAM, expected BPE");
  EXPECT_EQ(problem_of(small_model() + bytes(2, number(3, 4))), "m: model_type CHAR, expected BPE");
  EXPECT_EQ(problem_of(small_model() + bytes(2, number(3, 9))), "m: model_type 9, expected 1 to 4");
}

TEST(SentencePiece, BrokenMessagesAreRefused) {
  const std::string model = small_model() + kBpe;
  for (size_t length = 1; length < model.size(); ++length) {
    const auto tokenizer = parse_sentencepiece(model.substr(0, length), "", "m");
    EXPECT_FALSE(tokenizer.ok()) << length;  // the kind of model comes last
  }
  EXPECT_EQ(problem_of(std::string(11, '\xFF')),
            "m: a protocol buffer with a number of over ten bytes");
  EXPECT_EQ(problem_of(number(1, 5) + "\x0B"), "m: token 0 is empty");
  EXPECT_EQ(problem_of("\x0B"), "m: a protocol buffer with a field of wire type 3");
  EXPECT_EQ(problem_of(bytes(1, "") + kBpe), "m: token 0 is empty");
}

TEST(SentencePiece, ContradictionsAreNamed) {
  EXPECT_EQ(problem_of(small_model() + piece("ab", -5, TokenKind::kNormal) + kBpe),
            "m: tokens 6 and 7 are the same");
  EXPECT_EQ(problem_of(small_model() + piece("<0x41>", 0, TokenKind::kByte) + kBpe),
            "m: 1 byte tokens, expected 256 or none");
  EXPECT_EQ(problem_of(small_model() + bytes(2, number(3, 2) + number(35, 1))),
            "m: byte_fallback is true, but there are no byte tokens");
  EXPECT_EQ(problem_of(small_model() + piece("<0x41>", 0, TokenKind::kByte) +
                       bytes(2, number(3, 2) + number(35, 1))),
            "m: 1 byte tokens, expected 256 or none");
  EXPECT_EQ(problem_of(small_model() + bytes(2, number(3, 2) + number(41, 7))),
            "m: tokenizer.ggml.bos_token_id is 7, but there are 7 tokens");
  EXPECT_EQ(problem_of(small_model() + piece("c", NAN, TokenKind::kNormal) + kBpe),
            "m: the score of token 7 is nan");
  EXPECT_EQ(problem_of(small_model() + kBpe + bytes(3, bytes(2, "abcd"))).substr(0, 34),
            "m: precompiled_charsmap of 4 bytes");
  EXPECT_EQ(problem_of(small_model() + kBpe + bytes(5, bytes(2, "abcd"))),
            "m: a denormalizer_spec with replacements");
  EXPECT_EQ(problem_of(small_model() + piece(std::string(1025, 'a'), 0, TokenKind::kNormal) + kBpe),
            "m: token 7 of 1025 bytes, at most 1024 can be merged");
}

TEST(SentencePiece, ATextBeginsWithASpaceAndTheBeginning) {
  const Tokenizer tokenizer = load_pieces(small_model() + kBpe + kOwnSpaces);
  EXPECT_EQ(*tokenizer.encode("ab"), (Ids{5, 6}));
  EXPECT_EQ(*tokenizer.encode("ab", {.add_special_tokens = true}), (Ids{1, 5, 6}));
  EXPECT_EQ(*tokenizer.encode("  a"), (Ids{5, 5, 5, 3}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 6}), "ab");
  EXPECT_EQ(tokenizer.decode(Ids{5, 6}, {.continues_text = true}), " ab");
  EXPECT_EQ(tokenizer.decode(Ids{5, 5, 6}), " ab");
}

TEST(SentencePiece, TheConfigurationAddsTokensAndTurnsTheBeginningOff) {
  const std::string config =
      R"({"add_bos_token": false, "add_eos_token": true, "add_prefix_space": false,
          "added_tokens_decoder": {"8": {"content": "<|end|>", "special": true},
                                   "3": {"content": "[A]", "special": false}}})";
  const Tokenizer tokenizer = load_pieces(small_model() + kBpe + kOwnSpaces, config);
  EXPECT_EQ(*tokenizer.encode("b<|end|>b", {.add_special_tokens = true}), (Ids{4, 8, 4, 2}));
  EXPECT_EQ(*tokenizer.encode("b[A]b"), (Ids{4, 3, 4}));
  EXPECT_TRUE(tokenizer.is_special(8));
  EXPECT_FALSE(tokenizer.contains(7));
  EXPECT_EQ(problem_of(small_model() + kBpe, R"({"added_tokens_decoder": {"70000": {}}})"),
            "m: tokenizer_config.json: added token id \"70000\", expected 0 to 65543");
}

TEST(SentencePiece, ControlSymbolsAreMatchedUnlessTheTextIsInert) {
  const Tokenizer tokenizer = load_pieces(small_model() + kBpe + kOwnSpaces);
  EXPECT_EQ(*tokenizer.encode("a</s>b"), (Ids{5, 3, 2, 5, 4}));
  const auto inert = tokenizer.encode("a</s>b", {.match_added_tokens = false});
  EXPECT_EQ(*inert, (Ids{5, 3, 0, 4}));  // a run of unknown characters is one token
  const ByteRange range{1, 5};
  EXPECT_EQ(*tokenizer.encode("a</s>b</s>", {.inert_ranges = {&range, 1}}), (Ids{5, 3, 0, 4, 2}));
}

// A merge-based vocabulary of characters, as GGUF stores it.
StoredVocabulary merged_characters() {
  StoredVocabulary stored{.model = "gemma4",
                          .tokens = {"<unk>", "<bos>", "a", "b", "\xE2\x96\x81", "ab",
                                     "\xE2\x96\x81"
                                     "ab",
                                     "  ", "\n", "<turn|>"},
                          .token_type = {2, 3, 1, 1, 1, 1, 1, 4, 1, 3},
                          .merges = {"a b", "\xE2\x96\x81 ab", "\xE2\x96\x81 \xE2\x96\x81"},
                          .bos_token_id = 1,
                          .add_bos_token = false};
  for (int byte = 0; byte < 256; ++byte) {
    char text[7];
    std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
    stored.tokens.emplace_back(text);
    stored.token_type.push_back(1);
  }
  return stored;
}

TEST(CharacterMerges, FollowTheListAndFallBackToBytes) {
  const auto tokenizer = make_tokenizer(merged_characters(), "x");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("ab ab"), (Ids{5, 6}));
  EXPECT_EQ(*tokenizer->encode("a   b\n"), (Ids{2, 7, 4, 3, 8}));
  EXPECT_EQ(*tokenizer->encode("\xC3\xA9"), (Ids{10 + 0xC3, 10 + 0xA9}));
  EXPECT_EQ(tokenizer->decode(Ids{6, 10 + 0xC3, 10 + 0xA9, 7}), " ab\xC3\xA9  ");
  EXPECT_EQ(*tokenizer->encode("a<turn|>", {.add_special_tokens = true}), (Ids{1, 2, 9}));
}

TEST(CharacterMerges, AMergeOfUnknownPartsIsNamed) {
  StoredVocabulary stored = merged_characters();
  stored.merges.push_back("a c");
  const auto tokenizer = make_tokenizer(stored, "x");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().message(),
            "x: merge 3 (\"a\" \"c\"): a part or the whole is not in the vocabulary");
}

}  // namespace
}  // namespace moeflux
