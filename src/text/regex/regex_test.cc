// Where Oniguruma and PCRE2 differ: what each construct matches after translation, or why not.
#include "text/regex/regex.h"

#include <gtest/gtest.h>

#include <vector>

#include "text/regex/regex_syntax.h"

namespace moeflux {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << (regex.ok() ? "" : regex.error().to_string());
  std::vector<std::string> found;
  if (!regex.ok()) return found;
  Regex::Matcher matcher(*regex);
  for (size_t at = 0; at <= text.size();) {
    const auto match = matcher.find(text, at);
    EXPECT_TRUE(match.ok());
    if (!match.ok() || match->begin == Regex::npos) break;
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
    at = std::max(match->end, at + 1);
  }
  return found;
}

using Strings = std::vector<std::string>;

TEST(Regex, SpaceIsWhiteSpaceAndNothingElse) {
  // U+180E is no white space, though PCRE2's own \s has it.
  EXPECT_EQ(matches("\\s", "a\xC2\x85\xC2\xA0\xE3\x80\x80\xE1\xA0\x8E\xE2\x80\x8B\v"),
            (Strings{"\xC2\x85", "\xC2\xA0", "\xE3\x80\x80", "\v"}));
  EXPECT_EQ(matches("[^\\s]+", "a\xE1\xA0\x8E \xC2\xA0z"), (Strings{"a\xE1\xA0\x8E", "z"}));
  EXPECT_EQ(matches("[\\Sb]+", "a\xE1\xA0\x8E \xC2\xA0z"), (Strings{"a\xE1\xA0\x8E", "z"}));
  EXPECT_EQ(matches("\\S+", "a\xE1\xA0\x8E \xC2\xA0z"), (Strings{"a\xE1\xA0\x8E", "z"}));
}

TEST(Regex, CaselessMatchingFoldsTheLongS) {
  EXPECT_EQ(matches("(?i:'s)", "'s 'S '\xC5\xBF"), (Strings{"'s", "'S", "'\xC5\xBF"}));
}

TEST(Regex, ClassesIntersectAndNest) {
  EXPECT_EQ(matches("[\\p{L}&&[^\\p{Han}]]+",
                    "ab\xE6\xBC\xA2"
                    "cd"),
            (Strings{"ab", "cd"}));
  EXPECT_EQ(matches("[a-z&&[^aeiou]&&[^x-z]]+", "abcxyzde"), (Strings{"bc", "d"}));
  EXPECT_EQ(matches("[^a-z&&[^aeiou]]+", "bab1e"), (Strings{"a", "1e"}));
  EXPECT_EQ(matches("[a[0-9]_]+", "a1_b2"), (Strings{"a1_", "2"}));
  EXPECT_EQ(matches("[^a[0-9]]+", "a1_b2"), (Strings{"_b"}));
  EXPECT_EQ(matches("[a&b]+", "a&b"), (Strings{"a&b"}));
}

TEST(Regex, ScriptsAreScriptsNotExtensions) {
  // U+3001 has Han among its script extensions; its script is Common.
  EXPECT_EQ(matches("\\p{Han}+", "\xE6\xBC\xA2\xE3\x80\x81\xE3\x80\x85"),
            (Strings{"\xE6\xBC\xA2", "\xE3\x80\x85"}));
}

TEST(Regex, EscapesAndIntervalsMeanWhatTheyMeanInRuby) {
  EXPECT_EQ(matches("\\v", "\v\n"), Strings{"\v"});
  EXPECT_EQ(matches("a{,2}b", "aaab b"), (Strings{"aab", "b"}));
  EXPECT_EQ(matches("a{x}", "a{x}"), Strings{"a{x}"});
  EXPECT_EQ(matches("^b|c$", "a\nb\nc\nd"), (Strings{"b", "c"}));
  EXPECT_EQ(matches("\\u00e9|\\x41", "A\xC3\xA9"), (Strings{"A", "\xC3\xA9"}));
  EXPECT_EQ(matches("[a\\-z]+|[+--]", "a-z,"), (Strings{"a-z", ","}));
  EXPECT_EQ(matches("a++b|a?+a", "aab"), Strings{"aab"});
  EXPECT_EQ(matches(".", "\r\n"), Strings{"\r"});
  EXPECT_EQ(matches(quote_regex("a.[b]\\E-\xC3\xA9"), "a.[b]\\E-\xC3\xA9"),
            Strings{"a.[b]\\E-\xC3\xA9"});
}

TEST(Regex, APlusBehindAnIntervalRepeatsTheWhole) {
  EXPECT_EQ(matches("a{2}+", "aaaaa"), Strings{"aaaa"});
  EXPECT_EQ(matches("a{2}+a", "aaaa"), Strings{"aaa"});  // it gives back characters that it took
  EXPECT_EQ(matches("x(?:a|b[c]){2,3}+y", "xabcabcaabcy"), Strings{"xabcabcaabcy"});
  EXPECT_EQ(matches("ab{2}+", "abab abbbb"), Strings{"abbbb"});
  EXPECT_EQ(matches("\xC3\xA9{2}+", "\xC3\xA9\xC3\xA9\xC3\xA9"), Strings{"\xC3\xA9\xC3\xA9"});
  EXPECT_EQ(matches("\\p{Nd}{3}+\\z", "1234567"), Strings{"234567"});
  EXPECT_EQ(matches("[a-c]{2}+", "abcab"), Strings{"abca"});
}

TEST(Regex, WordsEndWhereWordCharactersDo) {
  EXPECT_EQ(matches("\\d{1,3}(?=(?:\\d{3})*\\b)", "12345 1234a"), (Strings{"12", "345"}));
  EXPECT_EQ(matches("\\bx", "x ax _x \xC3\xA9x -x"), (Strings{"x", "x"}));
  EXPECT_EQ(matches("e\\b", "e\xCC\x81 e"), Strings{"e"});  // marks are parts of words
  EXPECT_EQ(matches("[\\b]", "a\bb"), Strings{"\b"});
}

TEST(Regex, ASearchMayBeHeldToItsBeginning) {
  EXPECT_EQ(matches("\\Aa{2}|\\Gb", "aabba"), (Strings{"aa", "b", "b"}));
  EXPECT_EQ(matches("\\Gb", "abb"), Strings{});
  const Strings parts = matches(R"(\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510})",
                                std::string(1200, '7'));
  EXPECT_EQ(parts, (Strings{std::string(180, '7'), std::string(510, '7'), std::string(510, '7')}));
}

TEST(Regex, WhatHasNoTranslationIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"[\\G]", "anchor"},  {"a{2}?", "{n}?"},
      {"\\Bword", "\\B"},   {"\\h", "\\h"},
      {"\\R", "\\R"},       {"(?m).", "(?m"},
      {"a(?i)b", "(?i)"},   {"(?<name>a)", "(?<n"},
      {"(*UTF)a", "(*"},    {"[[:alpha:]]", "POSIX"},
      {"[]a]", "]"},        {"\\xE9", "raw byte"},
      {"[a-\\d]", "range"}, {"(a)\\1", "\\1"},
      {"(?R)", "(?R"},      {"\\p{Nonsense}", "refused"},
      {"(a", "refused"},    {"*", "refused"},
  };
  for (const auto& [pattern, name] : cases) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.error().code(), ErrorCode::kUnsupported) << pattern;
    EXPECT_NE(regex.error().message().find(name), std::string::npos) << regex.error().message();
  }
  for (const char* pattern :
       {"\\", "[", "[a", "[a&&]", "\\p", "\\p{}", "\\p{L", "\\u12", "\\x{}"}) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.error().code(), ErrorCode::kInvalidArgument) << pattern;
  }
  EXPECT_FALSE(Regex::compile("\xFF").ok());
  EXPECT_FALSE(Regex::compile(std::string(100'000, 'a')).ok());
}

TEST(Regex, ExponentialPatternsEndInAnError) {
  const Result<Regex> regex = Regex::compile("(?:a+)+$|(?:a|aa)+b");
  ASSERT_TRUE(regex.ok());
  Regex::Matcher matcher(*regex);
  const auto match = matcher.find(std::string(200, 'a') + "c", 0);
  ASSERT_FALSE(match.ok());
  EXPECT_EQ(match.error().code(), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace moeflux
