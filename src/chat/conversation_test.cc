#include "chat/conversation.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

Conversation two_turns() {
  Conversation talk;
  talk.set_system("be brief");
  talk.add_user("one");
  talk.add_answer("1", "easy");
  talk.add_user("two");
  talk.add_answer("2", "");
  return talk;
}

TEST(Conversation, UndoTakesAQuestionAndItsAnswer) {
  Conversation talk = two_turns();
  EXPECT_EQ(talk.undo(), "two");
  EXPECT_EQ(talk.messages().size(), 3u);
  EXPECT_EQ(talk.undo(), "one");
  EXPECT_EQ(talk.messages().size(), 1u);
  EXPECT_EQ(talk.undo(), std::nullopt);
  EXPECT_EQ(talk.messages().size(), 1u);
}

TEST(Conversation, UndoTakesAQuestionWithoutAnAnswer) {
  Conversation talk = two_turns();
  talk.add_user("three");
  EXPECT_TRUE(talk.is_open());
  EXPECT_EQ(talk.undo(), "three");
  EXPECT_FALSE(talk.is_open());
  EXPECT_EQ(talk.turns(), 2);
}

TEST(Conversation, ClearKeepsTheSystem) {
  Conversation talk = two_turns();
  talk.clear();
  ASSERT_EQ(talk.messages().size(), 1u);
  talk.set_system("be long");
  EXPECT_EQ(talk.messages()[0]["content"], "be long");
  talk.set_system("");
  EXPECT_TRUE(talk.messages().empty());
}

TEST(Conversation, SurvivesItsFile) {
  Conversation talk = two_turns();
  const Json call = {{"id", "call_1"}, {"type", "function"}};
  talk.add_answer("", "", Json::array({call}));
  const auto again = Conversation::parse(talk.to_json(), "file");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->messages(), talk.messages());
}

TEST(Conversation, MayHoldToolsCallsAndTheirAnswers) {
  const auto talk = Conversation::parse(
      R"([{"role": "user", "content": "a"},
          {"role": "assistant", "content": null, "tool_calls": [{}]},
          {"role": "tool", "tool_call_id": "call_1", "content": "b"}])",
      "file");
  ASSERT_TRUE(talk.ok()) << talk.error().message();
  EXPECT_EQ(talk->messages()[2]["tool_call_id"], "call_1");
}

TEST(Conversation, MayHoldTextsInParts) {
  auto talk = Conversation::parse(
      R"([{"role": "developer", "content": "a"},
          {"role": "user", "content": [{"type": "text", "text": "b"},
                                       {"type": "text", "text": "c"}]}])",
      "file");
  ASSERT_TRUE(talk.ok()) << talk.error().message();
  EXPECT_EQ(talk->undo(), "bc");
  EXPECT_EQ(talk->messages().size(), 1u);
}

TEST(Conversation, RefusesWhatIsNone) {
  for (const char* text :
       {"", "3", "{}", R"([{"role": "user"}])", R"([{"role": "tool", "content": null}])",
        R"([{"role": "assistant", "content": null}])",
        R"([{"role": "assistant", "tool_calls": []}])", R"([{"role": "user", "content": []}])",
        R"([{"role": "user", "content": [{"type": "text"}]}])",
        R"([{"role": "user", "content": [{"type": "image", "text": "b"}]}])"}) {
    const auto parsed = Conversation::parse(text, "file");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.error().message().find("file"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace moeflux
