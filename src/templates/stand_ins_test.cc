#include "templates/stand_ins.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

AddedToken token(std::string content, bool special) {
  AddedToken made;
  made.content = std::move(content);
  made.special = special;
  return made;
}

TEST(StandIns, PutBackEveryTextAndSayWhereSpellingsLie) {
  const SpecialSpellings spellings({token("<|a|>", true), token("<|a", true), token("<t>", false)});
  const Json original = {{"x<t>", Json::array({"1<|a|>2<|a3", "\U000F0000<t>", 7, nullptr})}};
  Json value = original;
  StandIns stand_ins;
  ASSERT_TRUE(stand_ins.replace(value, spellings.all()).ok());
  const std::string dumped = value.dump();
  EXPECT_EQ(dumped.find("<|a"), std::string::npos);
  EXPECT_EQ(dumped.find("<t>"), std::string::npos);
  const RenderedPrompt back = stand_ins.put_back(dumped);
  EXPECT_EQ(back.text, original.dump());
  std::vector<std::string> found;
  for (const ByteRange& range : back.inert_ranges) {
    found.push_back(back.text.substr(range.begin, range.end - range.begin));
  }
  EXPECT_EQ(found, (std::vector<std::string>{"<t>", "<|a|>", "<|a", "\U000F0000", "<t>"}));
}

TEST(StandIns, LeaveWordsAndTheAssistantsOwnTagsAlone) {
  const SpecialSpellings spellings({token("word 1", false), token("\n\n", false),
                                    token("<think>", false), token("<|e|>", true)});
  Json text = "word 1\n\n<think><|e|>";
  Json same = text;
  StandIns stand_ins;
  ASSERT_TRUE(stand_ins.replace(text, spellings.special()).ok());
  EXPECT_TRUE(text.get<std::string>().starts_with("word 1\n\n<think>"));
  EXPECT_EQ(stand_ins.put_back(text.get<std::string>()).inert_ranges.size(), 1u);
  ASSERT_TRUE(stand_ins.replace(same, spellings.all()).ok());
  EXPECT_EQ(stand_ins.put_back(same.get<std::string>()).inert_ranges.size(), 2u);
}

std::vector<std::string> inert_in(const SpecialSpellings& spellings, const std::string& written) {
  Json text = written;
  StandIns stand_ins;
  EXPECT_TRUE(stand_ins.replace(text, spellings.all()).ok());
  const RenderedPrompt back = stand_ins.put_back(text.get<std::string>());
  EXPECT_EQ(back.text, written);
  std::vector<std::string> found;
  for (const ByteRange& range : back.inert_ranges) {
    found.push_back(back.text.substr(range.begin, range.end - range.begin));
  }
  return found;
}

TEST(StandIns, LettersAndWordsThatAreAddedTokensStayTheUsers) {
  std::vector<AddedToken> tokens;
  std::string text = "a";
  for (const char* content :
       {"\u00fc", "\u00c0", "\u00f7", "\u043f\u0440\u0438", "\u4f60\u597d", "\u2014", "\U0001F600",
        "...", ",", "<", "<table>", "</h1>", "e\u0301", "\n\n"}) {
    tokens.push_back(token(content, false));
    text += content;
  }
  SpecialSpellings spellings(tokens);
  spellings.watch("{{ bos_token }}, \u4f60\u597d \u00fc");
  EXPECT_EQ(inert_in(spellings, text), std::vector<std::string>());
}

TEST(StandIns, MarkersAreInertWhateverTheirType) {
  const std::vector<std::string> markers = {
      "<think>", "<|im_end|>", "<\uFF5CUser\uFF5C>", "\uFF5Cend\uFF5C", "\u3010tool\u3011",
      "[/INST]", "<s>",        "<tool_call>",        "\u00fc"};
  std::vector<AddedToken> tokens;
  std::string text;
  for (const std::string& marker : markers) {
    // A special token is one, be it a letter.
    tokens.push_back(token(marker, marker == "\u00fc"));
    text += marker;
  }
  EXPECT_EQ(inert_in(SpecialSpellings(tokens), text), markers);
}

TEST(StandIns, WhatATemplateWritesIsStructure) {
  SpecialSpellings spellings({token("###", false), token("\u25c6", false), token("\u25c7", false)});
  const std::string text = "###\u25c6\u25c7";
  EXPECT_TRUE(inert_in(spellings, text).empty());
  spellings.watch("### {{ m.content }}");
  spellings.watch("\u25c6user");
  EXPECT_EQ(inert_in(spellings, text), (std::vector<std::string>{"###", "\u25c6"}));
}

}  // namespace
}  // namespace moeflux
