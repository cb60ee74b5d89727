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

}  // namespace
}  // namespace moeflux
