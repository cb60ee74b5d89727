// Anthropic's requests, and refusals with the name of the field.
#include "serve/anthropic/request.h"

#include <gtest/gtest.h>

#include <array>

namespace moeflux::serve {
namespace {

Json messages_hello() {
  return {{"max_tokens", 10}, {"messages", {{{"role", "user"}, {"content", "hello"}}}}};
}

Json messages_with(const char* name, Json value) {
  Json body = messages_hello();
  body[name] = std::move(value);
  return body;
}

ChatRequest decode_messages(const Json& body, const MessagesOptions& options = {}) {
  auto decoded = decode_messages_request(body, {}, options);
  const auto* error = std::get_if<ApiError>(&decoded);
  EXPECT_EQ(error, nullptr) << (error == nullptr ? "" : error->message);
  return error == nullptr ? std::get<ChatRequest>(std::move(decoded)) : ChatRequest{};
}

Json messages_of(const Json& body, const MessagesOptions& options = {}) {
  return decode_messages(body, options).conversation.messages;
}

ApiError messages_refusal(const Json& body) {
  auto decoded = decode_messages_request(body, {});
  const auto* error = std::get_if<ApiError>(&decoded);
  EXPECT_NE(error, nullptr) << body.dump();
  return error == nullptr ? ApiError{.status = 0} : *error;
}

TEST(DecodeMessages, ReadsBlocksOfEachKind) {
  const Json body = Json::parse(R"({
    "max_tokens": 10,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
               {"type": "text", "text": "Be kind."}],
    "messages": [
      {"role": "user", "content": [{"type": "text", "text": "Where is it?"}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "redacted_thinking", "data": "y"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"place": "hill"}},
        {"type": "tool_use", "id": "t2", "name": "look", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "a tree"},
        {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
         "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]},
        {"type": "text", "text": "And now?"}]}]})");
  const Json expected = Json::parse(R"([
    {"role": "system", "content": [{"type": "text", "text": "Be brief."},
                                   {"type": "text", "text": "Be kind."}]},
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
      {"id": "t1", "type": "function",
       "function": {"name": "look", "arguments": "{\"place\":\"hill\"}"}},
      {"id": "t2", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "t1", "content": "a tree"},
    {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "no"},
                                                       {"type": "text", "text": "way"}]},
    {"role": "user", "content": "And now?"}])");
  EXPECT_EQ(messages_of(body), expected);
}

TEST(DecodeMessages, TakesWhatIsSaid) {
  Json body = messages_hello();
  body.update(Json{{"temperature", 0.5},
                   {"top_p", 0.5},
                   {"top_k", 3},
                   {"stop_sequences", {"a", "b"}},
                   {"stream", true},
                   {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
                   {"output_config", {{"effort", "low"}}},
                   {"metadata", {{"user_id", "me"}}},
                   {"betas", {"x"}},
                   {"n", 3}});
  const ChatRequest request = decode_messages(body);
  EXPECT_EQ(request.generation.sampler.temperature, 0.5f);
  EXPECT_EQ(request.generation.sampler.top_k, 3);
  EXPECT_EQ(request.generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.generation.tokens_max, 10);
  EXPECT_EQ(request.generation.choices, 1);
  EXPECT_TRUE(request.generation.stream);
  EXPECT_EQ(request.reasoning_tokens_max, 1024);
  EXPECT_EQ(request.conversation.variables["enable_thinking"], true);
  EXPECT_EQ(request.conversation.variables["reasoning_effort"], "low");
}

TEST(DecodeMessages, ThinkingIsOffUnlessItIsAskedFor) {
  EXPECT_EQ(decode_messages(messages_hello()).conversation.variables["enable_thinking"], false);
  const Json adaptive = messages_with("thinking", {{"type", "adaptive"}});
  EXPECT_EQ(decode_messages(adaptive).conversation.variables["enable_thinking"], true);
}

TEST(DecodeMessages, ReadsToolsAndLeavesOutThoseOfServers) {
  const Json tools = Json::parse(R"([
    {"name": "look", "description": "Looks", "input_schema": {"type": "object"}},
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "custom", "name": "go", "input_schema": {"type": "object"}}])");
  Json body = messages_with("tools", tools);
  body["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  const ChatRequest request = decode_messages(body);
  const Json expected = Json::parse(R"([
    {"type": "function",
     "function": {"name": "look", "description": "Looks", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}])");
  EXPECT_EQ(request.conversation.tools, expected);
  EXPECT_TRUE(request.one_call);
  EXPECT_EQ(request.dropped_tools, (std::vector<std::string>{"web_search_20250305"}));
  body["tool_choice"] = {{"type", "none"}};
  EXPECT_TRUE(decode_messages(body).conversation.tools.is_null());
  EXPECT_EQ(request.tool_sources,
            (std::vector<std::string>{"tools[0].input_schema", "tools[2].input_schema"}));
  // A call that is asked for has to be possible.
  Json none = messages_with("tools", Json::array({tools[1]}));
  EXPECT_TRUE(decode_messages(none).conversation.tools.is_null());
  none["tool_choice"] = {{"type", "any"}};
  EXPECT_EQ(messages_refusal(none).param, "tools[0]");
  EXPECT_NE(messages_refusal(none).message.find("web_search_20250305"), std::string::npos);
  body["tool_choice"] = {{"type", "tool"}, {"name", "go"}};
  EXPECT_EQ(decode_messages(body).tool_rule.names, std::vector<std::string>{"go"});
  EXPECT_TRUE(decode_messages(body).calls_once());
  body["tool_choice"] = {{"type", "any"}};
  EXPECT_FALSE(decode_messages(body).calls_once());
  body["tool_choice"] = {{"type", "tool"}, {"name", "web_search"}};
  EXPECT_EQ(messages_refusal(body).param, "tool_choice");
}

TEST(DecodeMessages, LeavesOutWhatIsNewInEveryRequest) {
  const auto first = [](const char* nonce) {
    Json body = messages_hello();
    body["system"] = Json::array(
        {{{"type", "text"},
          {"text", std::string("x-anthropic-billing-header: cc_version=2.1.37.0d9; cch=") + nonce}},
         {{"type", "text"}, {"text", "You are an agent."}}});
    body["messages"].push_back(
        {{"role", "system"},
         {"content", "<total_tokens>" + std::string(nonce) + "</total_tokens>"}});
    return body;
  };
  Json counted = first("123 tokens left");
  EXPECT_EQ(messages_of(counted),
            Json::parse(R"([{"role": "system", "content": "You are an agent."},
                            {"role": "user", "content": "hello"}])"));
  const Json as_sent = messages_of(counted, {.steady_prompts = false});
  EXPECT_EQ(as_sent[0]["content"].size(), 2u);
  EXPECT_EQ(as_sent[2]["content"], "<total_tokens>123 tokens left</total_tokens>");
}

TEST(DecodeMessages, ASystemMessageInTheMiddleChangesNothingBeforeIt) {
  Json body = messages_hello();
  body["messages"].push_back({{"role", "system"}, {"content", "Mind the step."}});
  EXPECT_EQ(messages_of(body)[1]["role"], "system");
  // Where the template would put it in front, it becomes a part of what the user says.
  const MessagesOptions folds = {.late_system = false};
  EXPECT_EQ(messages_of(body, folds), Json::parse(R"([{"role": "user", "content": [
                {"type": "text", "text": "hello"},
                {"type": "text", "text": "Mind the step."}]}])"));
  const Json only = {{"max_tokens", 1},
                     {"messages", {{{"role", "system"}, {"content", "Mind the step."}}}}};
  EXPECT_EQ(messages_of(only, folds)[0]["role"], "system");
}

TEST(DecodeMessages, ManySystemMessagesAreJoinedInTimeLinearInTheirBytes) {
  constexpr int kMessages = 100'000;
  Json messages = Json::array({{{"role", "user"}, {"content", std::string(10'000'000, 'a')}}});
  for (int i = 0; i < kMessages; ++i) {
    messages.push_back({{"role", "system"}, {"content", "b"}});
  }
  const auto decoded =
      decode_messages_request({{"max_tokens", 1}, {"messages", std::move(messages)}}, {},
                              {.steady_prompts = true, .late_system = false});
  const auto* request = std::get_if<ChatRequest>(&decoded);
  ASSERT_NE(request, nullptr);
  const Json& read = request->conversation.messages;
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0]["content"].size(), 1u + kMessages);
}

TEST(DecodeMessages, ImagesOfEarlierMessagesAndOfResultsBecomeALine) {
  Json body = Json::parse(R"({"max_tokens": 10, "messages": [
    {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "x"}},
                                 {"type": "text", "text": "See"}]},
    {"role": "assistant", "content": [
      {"type": "tool_use", "id": "t1", "name": "read", "input": {}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t1", "content": [
        {"type": "text", "text": "File"}, {"type": "image", "source": {"type": "url"}}]},
      {"type": "text", "text": "And?"}]}]})");
  const std::string image = "[image left out: this model reads text alone]";
  const Json messages = messages_of(body);
  EXPECT_EQ(messages[0]["content"][0]["text"], image);
  EXPECT_EQ(messages[2]["content"][1]["text"], image);
  body["messages"][2]["content"].push_back({{"type", "image"}});
  const ApiError error = messages_refusal(body);
  EXPECT_EQ(error.param, "messages[2].content[2]");
  EXPECT_NE(error.message.find("image"), std::string::npos);
}

TEST(DecodeMessages, BlocksOfTheAssistantAreReadOrRefusedByName) {
  Json body = messages_hello();
  body["messages"].push_back({{"role", "assistant"}, {"content", Json::array()}});
  body["messages"].push_back({{"role", "user"}, {"content", "And?"}});
  Json& content = body["messages"][1]["content"];
  content = Json::parse(R"([
    {"type": "compaction", "content": "They met."}, {"type": "compaction", "content": null},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    {"type": "redacted_thinking", "data": "y"}])");
  EXPECT_EQ(messages_of(body)[1]["content"], "They met.");
  content = Json::parse(R"([{"type": "compaction", "content": 3}])");
  EXPECT_EQ(messages_refusal(body).param, "messages[1].content[0].content");
  for (const char* type : {"foo", "connector_text", "tool_result", ""}) {
    content = Json::array({{{"type", "text"}, {"text", "a"}}, {{"type", type}, {"content", "b"}}});
    const ApiError error = messages_refusal(body);
    EXPECT_EQ(error.param, "messages[1].content[1]") << type;
    EXPECT_NE(error.message.find(type), std::string::npos) << error.message;
  }
}

TEST(DecodeMessages, ToolsThatWereFoundAreALine) {
  Json body = messages_hello();
  Json& content = body["messages"][0]["content"];
  content = Json::parse(R"([{"type": "tool_result", "tool_use_id": "t1", "content": [
      {"type": "tool_reference", "tool_name": "look"}]}])");
  EXPECT_EQ(messages_of(body)[0]["content"], "[the tool look can be called]");
  content[0]["content"][0].erase("tool_name");
  EXPECT_EQ(messages_refusal(body).param, "messages[0].content[0].content[0].tool_name");
}

TEST(DecodeMessages, DocumentsOfTextAreRead) {
  Json body = messages_hello();
  Json& content = body["messages"][0]["content"];
  content = Json::parse(R"([
    {"type": "document", "title": "a", "source": {"type": "text", "media_type": "text/plain",
                                                  "data": "one"}},
    {"type": "document", "source": {"type": "content", "content": [
      {"type": "text", "text": "two"}]}},
    {"type": "search_result", "source": "x", "title": "b", "content": [
      {"type": "text", "text": "three"}]},
    {"type": "text", "text": "four"}])");
  const Json read = messages_of(body)[0]["content"];
  ASSERT_EQ(read.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read[i]["text"], (std::array{"one", "two", "three", "four"}[i]));
  }
  content = Json::parse(R"([{"type": "document", "source": {"type": "base64", "data": "x"}}])");
  EXPECT_EQ(messages_refusal(body).param, "messages[0].content[0]");
  content = Json::parse(R"([{"type": "document", "source": {"type": "content", "content": [
      {"type": "image"}]}}])");
  EXPECT_EQ(messages_refusal(body).param, "messages[0].content[0].content[0]");
  body["messages"].push_back({{"role", "user"}, {"content", "And?"}});
  EXPECT_EQ(messages_of(body)[0]["content"], "[image left out: this model reads text alone]");
}

TEST(DecodeMessages, WhatHoldsAnAnswerHasTheClientsName) {
  const Json format = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
  EXPECT_EQ(decode_messages(messages_with("output_config", {{"format", format}})).constraint.source,
            "output_config.format.schema");
  EXPECT_EQ(decode_messages(messages_with("output_format", format)).constraint.source,
            "output_format.schema");
}

TEST(DecodeMessages, NamesTheFieldThatCannotBe) {
  const auto message = [](Json content, const char* role = "user") {
    return Json::array({{{"role", role}, {"content", std::move(content)}}});
  };
  const Json image = Json::array({{{"type", "image"}}});
  const std::vector<std::tuple<const char*, Json, const char*>> bad = {
      {"max_tokens", nullptr, "max_tokens"},
      {"max_tokens", 0, "max_tokens"},
      {"messages", nullptr, "messages"},
      {"messages", Json::array({3}), "messages[0]"},
      {"messages", message(7), "messages[0].content"},
      {"messages", message("x", "robot"), "messages[0].role"},
      {"messages",
       message(Json::array({{{"type", "tool_use"}, {"id", "a"}, {"name", "f"}}}), "assistant"),
       "messages"},
      {"messages", message(image), "messages[0].content[0]"},
      {"messages", message(Json::array({{{"type", "text"}}})), "messages[0].content[0].text"},
      {"system", 3, "system"},
      {"stop_sequences", Json::array({1}), "stop_sequences"},
      {"temperature", "hot", "temperature"},
      {"thinking", {{"type", "deep"}}, "thinking.type"},
      {"thinking", {{"type", "enabled"}, {"budget_tokens", -1}}, "thinking.budget_tokens"},
      {"output_config", {{"effort", 3}}, "output_config.effort"},
      {"output_config", {{"format", {{"type", "xml"}}}}, "output_config.format.type"},
      {"output_config", {{"format", {{"type", "json_schema"}}}}, "output_config.format.schema"},
      {"output_format", {{"type", "json_schema"}}, "output_format.schema"},
      {"response_format", {{"type", "json_object"}}, "response_format"},
      {"mcp_servers", Json::array({{{"type", "url"}}}), "mcp_servers"},
      {"container", "c", "container"},
      {"tool_choice", {{"type", "any"}}, "tool_choice"},
      {"tool_choice", {{"type", "tool"}, {"name", "look"}}, "tool_choice"},
      {"tool_choice", {{"type", "tool"}}, "tool_choice.name"},
      {"tool_choice", {{"type", "some"}}, "tool_choice.type"},
      {"tools", "all", "tools"},
      {"tools", Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}}),
       "tools[0].type"},
      {"tools", Json::array({{{"type", "function"}, {"name", "f"}}}), "tools[0].type"},
      {"tools", Json::array({{{"function", {{"name", "f"}}}}}), "tools[0].function"},
      {"tools", Json::array({{{"input_schema", Json::object()}}}), "tools[0].name"}};
  for (const auto& [name, value, param] : bad) {
    const ApiError error = messages_refusal(messages_with(name, value));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, param) << value.dump();
    EXPECT_NE(error.message.find(param), std::string::npos) << error.message;
  }
}

TEST(DecodeMessages, ALastTextOfTheAssistantIsContinued) {
  auto decoded = decode_messages_request(
      messages_with("messages",
                    Json::array({{{"role", "user"}, {"content", "Say the days."}},
                                 {{"role", "assistant"}, {"content", "Monday, Tues"}}})),
      {});
  const auto* request = std::get_if<ChatRequest>(&decoded);
  ASSERT_NE(request, nullptr);
  EXPECT_TRUE(request->conversation.continue_final_message);
  EXPECT_FALSE(request->conversation.add_generation_prompt);
}

TEST(DecodeMessages, CountingNeedsNoLimit) {
  Json body = messages_hello();
  body.erase("max_tokens");
  EXPECT_EQ(decode_messages(body, {.counts_only = true}).generation.tokens_max, -1);
}

}  // namespace
}  // namespace moeflux::serve
