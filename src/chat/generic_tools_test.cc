#include "chat/generic_tools.h"

#include <gtest/gtest.h>

#include "output/output_message_test_util.h"

namespace moeflux {
namespace {

Json said(const char* role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

Json tool(const char* name) {
  return {{"type", "function"}, {"function", {{"name", name}, {"description", "d"}}}};
}

TEST(GenericTools, StandInTheSystemMessage) {
  TemplateRequest request;
  request.tools = Json::array({tool("f"), tool("g")});
  request.messages = Json::array({said("user", "q")});
  const TemplateRequest added = with_generic_tools(request);
  EXPECT_TRUE(added.tools.is_null());
  ASSERT_EQ(added.messages.size(), 2u);
  EXPECT_EQ(added.messages[0]["role"], "system");
  const auto text = added.messages[0]["content"].get<std::string>();
  EXPECT_NE(text.find("{\"name\":\"f\",\"description\":\"d\"}\n"), std::string::npos) << text;
  EXPECT_NE(text.find("{\"name\":\"g\""), std::string::npos);
  request.messages.insert(request.messages.begin(), said("system", "Be brief."));
  const TemplateRequest joined = with_generic_tools(request);
  ASSERT_EQ(joined.messages.size(), 2u);
  EXPECT_EQ(joined.messages[0]["content"], "Be brief.\n\n" + text);
  request.tools = nullptr;
  EXPECT_EQ(with_generic_tools(request).messages, request.messages);
}

// The model reads a call as it would have written it.
TEST(GenericTools, ACallIsReadAsItIsWritten) {
  Json message = said("assistant", "I look.");
  message["tool_calls"] = Json::array();
  for (const char* city : {"Paris", "Rome"}) {
    message["tool_calls"].push_back(
        {{"id", city}, {"function", {{"name", "f"}, {"arguments", Json{{"city", city}}.dump()}}}});
  }
  TemplateRequest request;
  request.messages = Json::array({said("user", "q"), message});
  const Json told = with_generic_tools(request).messages[1];
  EXPECT_FALSE(told.contains("tool_calls"));
  const OutputFormat format = generic_output_format(*find_output_format("text"));
  EXPECT_EQ(format.name, kGenericFormat);
  const OutputMessage read = read_output(format, told["content"].get<std::string>());
  EXPECT_EQ(read.content, "I look.");
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_EQ(read.calls[1].name, "f");
  EXPECT_EQ(Json::parse(read.calls[1].arguments), (Json{{"city", "Rome"}}));
}

TEST(GenericTools, ResultsAreWhatTheUserSays) {
  TemplateRequest request;
  const Json parts = Json::array({{{"type", "text"}, {"text", "and?"}}});
  request.messages = Json::array({said("user", "q"), said("assistant", "a"), said("tool", "R1"),
                                  said("tool", "R2"), said("user", parts)});
  const Json told = with_generic_tools(request).messages;
  ASSERT_EQ(told.size(), 3u) << told;
  EXPECT_EQ(told[2]["role"], "user");
  EXPECT_EQ(told[2]["content"],
            "<tool_response>\nR1\n</tool_response>\n\n<tool_response>\nR2\n</tool_response>\n\n"
            "and?");
}

TEST(GenericTools, ReasoningIsWrittenAsBefore) {
  const OutputFormat& own = *find_output_format("compact_calls");
  const OutputFormat format = generic_output_format(own);
  EXPECT_EQ(format.reasoning_open, own.reasoning_open);
  EXPECT_EQ(format.reasoning_close, own.reasoning_close);
  EXPECT_EQ(format.call_open, std::vector<std::string>{"<tool_call>"});
}

}  // namespace
}  // namespace moeflux
