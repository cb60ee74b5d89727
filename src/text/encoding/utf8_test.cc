// The repair rule, whole and in pieces.
#include "text/encoding/utf8.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "text/encoding/byte_alphabet.h"

namespace moeflux {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

TEST(Utf8, EachMaximalIllFormedSubpartIsReplacedOnce) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"a\x80z", "a" + kFffd + "z"},
      {"\xE2\x82", kFffd},
      {"\xE2\x82z", kFffd + "z"},
      {"\xF0\x9F\x98", kFffd},
      {"\xF0\x80\x80", kFffd + kFffd + kFffd},
      {"\xED\xA0\x80", kFffd + kFffd + kFffd},
      {"\xC0\xAF", kFffd + kFffd},
      {"\xF4\x90\x80\x80", kFffd + kFffd + kFffd + kFffd},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xE2\x82\xE2\x82\xAC", kFffd + "\xE2\x82\xAC"},
  };
  for (const auto& [text, repaired] : cases) {
    EXPECT_EQ(replace_invalid_utf8(text), repaired) << testing::PrintToString(text);
    EXPECT_EQ(is_valid_utf8(text), text == repaired) << testing::PrintToString(text);
  }
}

TEST(Utf8, EveryScalarValueSurvivesARoundTrip) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, &text);
    const Utf8Step step = next_utf8(text);
    ASSERT_EQ(step.kind, Utf8Kind::kCharacter) << static_cast<uint32_t>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.bytes_count, text.size());
  }
}

TEST(Utf8Stream, AnyCutGivesTheSameText) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFF\xE2\x82\xF0\x9F\xC3";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string out;
      stream.push(text.substr(0, first), &out);
      EXPECT_TRUE(is_valid_utf8(out));
      stream.push(text.substr(first, second - first), &out);
      EXPECT_TRUE(is_valid_utf8(out));
      stream.push(text.substr(second), &out);
      stream.finish(&out);
      EXPECT_EQ(out, replace_invalid_utf8(text)) << first << " " << second;
    }
  }
}

TEST(ByteAlphabet, SpellsEveryByteAndReadsItBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  EXPECT_EQ(bytes_of_spelling(spelling_of_bytes(bytes)), bytes);
  EXPECT_EQ(spelling_of_bytes(" a\n"),
            "\xC4\xA0"
            "a\xC4\x8A");
  EXPECT_FALSE(bytes_of_spelling("a b").has_value());
  EXPECT_FALSE(bytes_of_spelling("\xEF\xBD\x9C").has_value());
}

}  // namespace
}  // namespace moeflux
