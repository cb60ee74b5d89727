// Normalisation against examples of UAX 15, and its cost on hostile text.
#include "text/encoding/unicode.h"

#include <gtest/gtest.h>

#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(c, &out);
  return out;
}

TEST(Nfc, ComposesAndOrdersMarks) {
  const std::pair<std::u32string, std::u32string> cases[] = {
      {U"e\u0301", U"\u00E9"},
      {U"\u212B", U"\u00C5"},
      {U"q\u0307\u0323", U"q\u0323\u0307"},
      {U"\u1E0A\u0323", U"\u1E0C\u0307"},
      {U"\u1100\u1161\u11A8", U"\uAC01"},
      {U"\u0958", U"\u0915\u093C"},  // composition exclusion
      {U"\uFB01", U"\uFB01"},        // compatibility only
      {U"a\U0000E000\uFFFE", U"a\U0000E000\uFFFE"},
  };
  for (const auto& [text, normalized] : cases) {
    const auto found = normalize_nfc(utf8(text));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, utf8(normalized));
  }
}

TEST(Nfc, ALongRunOfMarksIsNotQuadratic) {
  std::u32string text = U"a";
  for (int i = 0; i < 300'000; ++i) text += i % 2 == 0 ? U"\u0315" : U"\u0323";
  const auto found = normalize_nfc(utf8(text));  // minutes if every mark moved one by one
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->starts_with(utf8(U"\u1EA1\u0323")));
  EXPECT_TRUE(found->ends_with(utf8(U"\u0315\u0315")));
}

TEST(Unicode, WordCharactersAreThoseOfRegularExpressions) {
  for (const char32_t c : U"aZ0_\u00E9\u0301\u2160\u203F\u200D\u24B6\u6F22") {
    if (c == 0) continue;
    EXPECT_TRUE(is_word_character(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : U" -\u00BD\u2014\u200B\U0001F600") {
    if (c == 0) continue;
    EXPECT_FALSE(is_word_character(c)) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace moeflux
