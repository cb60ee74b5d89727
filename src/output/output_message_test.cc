#include <gtest/gtest.h>

#include "output/output_message_test_util.h"

namespace moeflux {
namespace {

constexpr std::string_view kAnswer =
    "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
    "</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {\"b\": \"x";

TEST(OutputMessage, HoldsReasoningContentAndCallsOfAText) {
  const OutputMessage message = read_output(*find_output_format("tagged_json"), kAnswer);
  EXPECT_EQ(message.reasoning, "Hm.");
  EXPECT_EQ(message.content, "I look.");
  EXPECT_EQ(message.misfits, 0);
  ASSERT_EQ(message.calls.size(), 2u);
  EXPECT_EQ(message.calls[0].id, make_call_id(CallIdRule::kLong, 0, 0));
  EXPECT_EQ(message.calls[0].name, "f");
  EXPECT_EQ(message.calls[0].arguments, R"({"a": 1})");
  EXPECT_TRUE(message.calls[0].complete);
  EXPECT_EQ(message.calls[1].name, "g");
  EXPECT_EQ(message.calls[1].arguments, R"({"b": "x)");
  EXPECT_FALSE(message.calls[1].complete);
}

TEST(OutputMessage, IsTheSameWhereEventsComeOneByOne) {
  const OutputMessage whole = read_output(*find_output_format("tagged_json"), kAnswer);
  OutputParser parser(*find_output_format("tagged_json"));
  OutputMessage message;
  for (const char c : kAnswer) {
    std::vector<OutputEvent> events;
    parser.push(std::string_view(&c, 1), &events);
    message.add(events);
    if (c == '.') {
      EXPECT_EQ(parser.in_reasoning(), message.content.empty());
    }
  }
  EXPECT_EQ(parser.complete_calls(), 1);
  std::vector<OutputEvent> events;
  parser.finish(&events);
  message.add(events);
  EXPECT_EQ(message.reasoning, whole.reasoning);
  EXPECT_EQ(message.content, whole.content);
  ASSERT_EQ(message.calls.size(), 2u);
  EXPECT_EQ(message.calls[1].arguments, whole.calls[1].arguments);
}

TEST(OutputMessage, CountsWhatBeganLikeACallAndWasNone) {
  const std::string text = "<tool_call>[1]</tool_call> <tool_call>x";
  const OutputMessage message = read_output(*find_output_format("tagged_json"), text);
  EXPECT_EQ(message.misfits, 2);
  EXPECT_EQ(message.content, text);
  EXPECT_TRUE(message.calls.empty());
}

}  // namespace
}  // namespace moeflux
