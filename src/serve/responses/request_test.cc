// Requests for responses, and refusals with the name of the field.
#include "serve/responses/request.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "serve/request/left_out_media.h"

namespace moeflux::serve {
namespace {

ResponsesRequest decode_responses(const Json& body, const Json& earlier = Json::array()) {
  auto decoded = decode_responses_request(body, {}, earlier);
  const auto* error = std::get_if<ApiError>(&decoded);
  EXPECT_EQ(error, nullptr) << (error == nullptr ? "" : error->message);
  return error == nullptr ? std::get<ResponsesRequest>(std::move(decoded)) : ResponsesRequest{};
}

Json responses_with(const char* name, Json value) {
  Json body = {{"input", "hello"}};
  body[name] = std::move(value);
  return body;
}

ApiError responses_refusal(const Json& body) {
  auto decoded = decode_responses_request(body, {}, Json::array());
  const auto* error = std::get_if<ApiError>(&decoded);
  EXPECT_NE(error, nullptr) << body.dump();
  return error == nullptr ? ApiError{.status = 0} : *error;
}

TEST(DecodeResponses, WhatTheAssistantDidInATurnIsOneMessage) {
  const Json body = Json::parse(R"({
    "instructions": "Be brief.",
    "input": [
      {"role": "user", "content": "Where is it?"},
      {"type": "reasoning", "id": "rs_1", "summary": [],
       "content": [{"type": "reasoning_text", "text": "Hm."}]},
      {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
       "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
      {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
      {"type": "web_search_call", "id": "ws_1"},
      {"type": "function_call", "call_id": "c2", "name": "go", "arguments": "{\"a\":1}"},
      {"type": "function_call_output", "call_id": "c1", "output": "a tree"},
      {"type": "function_call_output", "call_id": "c2",
       "output": [{"type": "input_text", "text": "gone"}]},
      {"type": "function_call_output", "name": "goal", "namespace": "agent", "output": "a fox"},
      {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Aha."}],
       "encrypted_content": "x"},
      {"role": "developer", "content": [{"type": "input_text", "text": "a"},
                                        {"type": "input_text", "text": "b"}]}]})");
  const Json expected = Json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": [
       {"type": "text", "text": "I look."},
       {"type": "text", "text": "[web_search_call left out: made by another server for itself]"}],
     "reasoning_content": "Hm.", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
      {"id": "c2", "type": "function", "function": {"name": "go", "arguments": "{\"a\":1}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "a tree"},
    {"role": "tool", "tool_call_id": "c2", "content": "gone"},
    {"role": "tool", "tool_call_id": "goal", "content": "a fox"},
    {"role": "assistant", "content": "", "reasoning_content": "Aha."},
    {"role": "developer", "content": [{"type": "text", "text": "a"},
                                      {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(SortedJson::parse(decode_responses(body).chat.conversation.messages.dump()),
            SortedJson::parse(expected.dump()));
}

// Open Responses' history with phases.
TEST(DecodeResponses, NoItemIsLeftOutInSilence) {
  const Json question = {{"role", "user"}, {"content", "q"}};
  const auto messages = [&](Json items) {
    items.insert(items.begin(), question);
    items.push_back(question);
    return decode_responses({{"input", std::move(items)}}).chat.conversation.messages;
  };
  for (const char* type :
       {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
        "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call",
        "tool_search_call", "tool_search_output", "compaction", "compaction_summary"}) {
    const Json read = messages(Json::array({{{"type", type}, {"id", "x"}}}));
    ASSERT_EQ(read.size(), 3u) << type;
    EXPECT_EQ(read[1]["role"], "assistant");
    EXPECT_EQ(read[1]["content"].get<std::string>().find(formatted("[{} left out", type)), 0u);
  }
  for (const Json& type : {Json("foo"), Json("additional_tools"), Json(3), Json("")}) {
    const Json item = {{"type", type}, {"role", "user"}, {"content", "XX"}};
    const ApiError error = responses_refusal({{"input", Json::array({question, item, question})}});
    EXPECT_EQ(error.param, "input[1].type") << type;
    EXPECT_NE(error.message.find(type.dump()), std::string::npos) << error.message;
  }
  EXPECT_EQ(messages(Json::array({{{"type", nullptr}, {"role", "user"}, {"content", "a"}}})).size(),
            3u);
}

TEST(DecodeResponses, CallsOfToolsThatClientsRunHaveResults) {
  const Json read = decode_responses(Json::parse(R"({"input": [
    {"role": "user", "content": "q"},
    {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+x"},
    {"type": "local_shell_call", "call_id": "b", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
    {"type": "apply_patch_call", "call_id": "d", "operation": {"path": "p"}},
    {"type": "computer_call", "call_id": "e", "action": {"type": "screenshot"}},
    {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
    {"type": "local_shell_call_output", "id": "b", "output": "a file"},
    {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "out"}]},
    {"type": "apply_patch_call_output", "call_id": "d", "status": "completed"},
    {"type": "computer_call_output", "call_id": "e",
     "output": {"type": "computer_screenshot", "image_url": "data:x"}}]})"))
                        .chat.conversation.messages;
  ASSERT_EQ(read.size(), 7u);
  std::string calls;
  for (const Json& call : read[1]["tool_calls"]) {
    calls += call["id"].get<std::string>() + call["function"]["name"].get<std::string>() +
             call["function"]["arguments"].get<std::string>();
  }
  EXPECT_EQ(calls,
            R"(apatch{"input":"+x"}blocal_shell{"type":"exec","command":["ls"]})"
            R"(cshell{"commands":["ls"]}dapply_patch{"path":"p"}ecomputer{"type":"screenshot"})");
  std::string results;
  for (size_t i = 2; i < read.size(); ++i) {
    results += read[i]["tool_call_id"].get<std::string>() + read[i]["content"].get<std::string>();
  }
  EXPECT_EQ(results, R"(adoneba filec[{"stdout":"out"}]de)" + left_out_line("image"));
}

TEST(DecodeResponses, MessagesOfAPhaseAreOneTurn) {
  const Json body = Json::parse(R"({"input": [
    {"type": "message", "role": "assistant", "phase": "commentary", "content": "I look."},
    {"type": "message", "role": "assistant", "phase": "final_answer", "content": "Four."},
    {"type": "message", "role": "user", "content": "Repeat only the number."}]})");
  EXPECT_EQ(decode_responses(body).chat.conversation.messages, Json::parse(R"([
    {"role": "assistant", "content": [{"type": "text", "text": "I look."},
                                      {"type": "text", "text": "Four."}]},
    {"role": "user", "content": "Repeat only the number."}])"));
}

TEST(DecodeResponses, ALastMessageOfTheAssistantIsContinued) {
  const Json body = Json::parse(
      R"({"input": [{"role": "user", "content": "Say the days."},
                    {"role": "assistant", "content": "Monday, Tues"}]})");
  EXPECT_TRUE(decode_responses(body).chat.conversation.continue_final_message);
}

TEST(DecodeResponses, GoesOnFromEarlierItemsWithItsOwnInstructions) {
  const Json earlier = Json::parse(R"([
    {"type": "message", "role": "user", "content": "Hi"},
    {"type": "message", "role": "assistant",
     "content": [{"type": "output_text", "text": "Ho"}]}])");
  const ResponsesRequest request =
      decode_responses(responses_with("instructions", "Be brief."), earlier);
  EXPECT_EQ(request.chat.conversation.messages, Json::parse(R"([
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "hello"}])"));
  EXPECT_EQ(request.input,
            Json::parse(R"([{"type": "message", "role": "user", "content": "hello"}])"));
}

TEST(DecodeResponses, TakesWhatIsSaid) {
  Json body = responses_with("max_output_tokens", 7);
  body.update(Json{{"temperature", 0.5},
                   {"stream", true},
                   {"store", false},
                   {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
                   {"include", {"reasoning.encrypted_content", "message.output_text.logprobs"}},
                   {"top_logprobs", 2},
                   {"metadata", {{"a", "b"}}},
                   {"parallel_tool_calls", false},
                   {"text", {{"format", {{"type", "text"}}}, {"verbosity", "low"}}}});
  const ResponsesRequest request = decode_responses(body);
  EXPECT_EQ(request.chat.generation.tokens_max, 7);
  EXPECT_EQ(request.chat.generation.sampler.temperature, 0.5f);
  EXPECT_TRUE(request.chat.generation.stream);
  EXPECT_FALSE(request.store);
  EXPECT_EQ(request.chat.conversation.variables["reasoning_effort"], "low");
  EXPECT_EQ(request.chat.top_logprobs, 2);
  EXPECT_TRUE(request.chat.one_call);
  EXPECT_EQ(request.echo["metadata"]["a"], "b");
  EXPECT_EQ(request.echo["store"], false);
  EXPECT_EQ(request.echo["max_output_tokens"], 7);
  EXPECT_EQ(request.echo["text"]["format"]["type"], "text");
}

TEST(DecodeResponses, LeavesOutToolsThatNobodyHereCanRun) {
  const Json tools = Json::parse(R"([
    {"type": "function", "name": "look", "description": "Looks", "strict": false,
     "parameters": {"type": "object"}},
    {"type": "web_search"}, {"type": "local_shell"}, {"type": "custom", "name": "patch"}])");
  Json body = responses_with("tools", tools);
  body["tool_choice"] = "auto";
  const ResponsesRequest request = decode_responses(body);
  EXPECT_EQ(request.chat.conversation.tools, Json::parse(R"([{"type": "function", "function":
    {"name": "look", "description": "Looks", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(request.chat.dropped_tools,
            (std::vector<std::string>{"web_search", "local_shell", "custom"}));
  EXPECT_EQ(request.echo["tools"].size(), 1u);
}

// A long item and many short ones behind it: each that copied the turn's text so far would make 2
// TB.
TEST(DecodeResponses, ATurnOfManyItemsIsJoinedInTimeLinearInItsBytes) {
  constexpr int kItems = 100'000;
  const auto of_assistant = [](const std::string& text) {
    return Json{{"type", "message"}, {"role", "assistant"}, {"content", text}};
  };
  const auto thought = [](const std::string& text) {
    return Json{{"type", "reasoning"},
                {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
  };
  const std::string longest(10'000'000, 'a');
  Json input = Json::array({of_assistant(longest), thought(longest)});
  for (int i = 0; i < kItems; ++i) {
    input.push_back(of_assistant("b"));
    input.push_back(thought("c"));
  }
  const auto decoded = decode_responses_request({{"input", std::move(input)}}, {}, Json::array());
  const auto* request = std::get_if<ResponsesRequest>(&decoded);
  ASSERT_NE(request, nullptr);
  const Json& messages = request->chat.conversation.messages;
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0]["content"].size(), 1u + kItems);
  EXPECT_EQ(messages[0]["reasoning_content"].get_ref<const std::string&>().size(),
            longest.size() + kItems);
}

TEST(DecodeResponses, WhatHoldsAnAnswerHasTheClientsName) {
  const auto held = [](Json format) {
    return decode_responses(responses_with("text", {{"format", std::move(format)}}))
        .chat.constraint;
  };
  const Json schema = {{"type", "object"}};
  const OutputConstraint one = held({{"type", "json_schema"}, {"name", "x"}, {"schema", schema}});
  EXPECT_EQ(one.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(one.source, "text.format.schema");
  EXPECT_EQ(one.text, schema.dump());
  const Json said =
      decode_responses(
          responses_with(
              "text", {{"format", {{"type", "json_schema"}, {"name", "x"}, {"schema", schema}}}}))
          .echo["text"]["format"];
  EXPECT_EQ(said["description"], nullptr);
  EXPECT_EQ(said["strict"], true);
  EXPECT_EQ(said["schema"], schema);
  EXPECT_EQ(held({{"type", "json_object"}}).kind, ConstraintKind::kJsonObject);
  EXPECT_EQ(held({{"type", "json_object"}, {"schema", schema}}).text, schema.dump());
  EXPECT_EQ(held({{"type", "text"}}).kind, ConstraintKind::kNone);
  Json tools = Json::parse(R"([{"type": "web_search"}, {"type": "function", "name": "f"}])");
  EXPECT_EQ(decode_responses(responses_with("tools", tools)).chat.tool_sources,
            std::vector<std::string>{"tools[1].parameters"});
}

TEST(DecodeResponses, AChoiceOfToolsIsAmongThoseThatCanBeCalled) {
  Json body = responses_with("tools", Json::parse(R"([{"type": "function", "name": "f"}])"));
  body["tool_choice"] = "required";
  EXPECT_TRUE(decode_responses(body).chat.tool_rule.required);
  EXPECT_FALSE(decode_responses(body).chat.calls_once());
  body["tool_choice"] = {{"type", "function"}, {"name", "f"}};
  EXPECT_EQ(decode_responses(body).chat.tool_rule.names, std::vector<std::string>{"f"});
  EXPECT_TRUE(decode_responses(body).chat.calls_once());
  body["tool_choice"] = {{"type", "function"}, {"name", "g"}};
  EXPECT_EQ(responses_refusal(body).param, "tool_choice");
  body["tool_choice"] = "required";
  for (const char* type : {"web_search", "custom"}) {
    body["tools"] = Json::array({{{"type", type}, {"name", "f"}}});
    EXPECT_EQ(responses_refusal(body).param, "tools[0]");
    EXPECT_NE(responses_refusal(body).message.find(type), std::string::npos);
  }
  body["tool_choice"] = "auto";
  EXPECT_TRUE(decode_responses(body).chat.conversation.tools.empty());
}

TEST(DecodeResponses, ImagesOfEarlierItemsBecomeALine) {
  Json input = Json::parse(R"([
    {"role": "user", "content": [{"type": "input_text", "text": "See"},
                                 {"type": "input_image", "image_url": "data:x"}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c",
     "output": [{"type": "input_image", "image_url": "data:x"},
                {"type": "input_file", "file_data": "x"}]},
    {"role": "assistant", "content": "A fox."},
    {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]}])");
  const Json messages = decode_responses({{"input", input}}).chat.conversation.messages;
  const std::string image = "[image left out: this model reads text alone]";
  EXPECT_EQ(messages[0]["content"][1]["text"], image);
  EXPECT_EQ(messages[2]["content"][0]["text"], image);
  EXPECT_EQ(messages[2]["content"][1]["text"], "[file left out: this model reads text alone]");
  // Stored items are earlier, whatever they were.
  EXPECT_EQ(decode_responses(responses_with("store", true), input).chat.conversation.messages[0],
            messages[0]);
  input[4]["content"].push_back({{"type", "input_image"}, {"image_url", "data:x"}});
  const ApiError error = responses_refusal({{"input", input}});
  EXPECT_EQ(error.param, "input[4].content[1]");
  EXPECT_NE(error.message.find("image"), std::string::npos);
}

TEST(DecodeResponses, NamesTheFieldThatCannotBe) {
  const Json image =
      Json::parse(R"([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])");
  const std::vector<std::tuple<const char*, Json, const char*>> bad = {
      {"input", nullptr, "input"},
      {"input", 3, "input"},
      {"input", Json::array(), "input"},
      {"input", Json::array({3}), "input[0]"},
      {"input", Json::array({Json::object()}), "input[0]"},
      {"input", image, "input[0].content[0]"},
      {"input", Json::array({{{"type", "function_call"}}}), "input[0].call_id"},
      {"input", Json::array({{{"type", "custom_tool_call"}, {"call_id", "c"}, {"name", "f"}}}),
       "input[0].input"},
      {"input", Json::array({{{"type", "shell_call"}, {"call_id", "c"}}}), "input[0].action"},
      {"input", Json::array({{{"type", "shell_call_output"}, {"output", "x"}}}),
       "input[0].call_id"},
      {"input", Json::array({{{"type", "item_reference"}, {"id", "x"}}}), "input[0]"},
      {"max_output_tokens", "many", "max_output_tokens"},
      {"background", true, "background"},
      {"conversation", "conv_1", "conversation"},
      {"prompt", {{"id", "pmpt_1"}}, "prompt"},
      {"response_format", {{"type", "json_object"}}, "response_format"},
      {"truncation", "middle", "truncation"},
      {"metadata", "x", "metadata"},
      {"max_tool_calls", 0, "max_tool_calls"},
      {"top_logprobs", 21, "top_logprobs"},
      {"input", Json::array({{{"role", "tool"}, {"content", "x"}}}), "input[0].role"},
      {"tool_choice", "required", "tool_choice"},
      {"tool_choice", {{"type", "function"}, {"name", "look"}}, "tool_choice"},
      {"tool_choice", {{"type", "file_search"}}, "tool_choice"},
      {"text", {{"format", {{"type", "xml"}}}}, "text.format.type"},
      {"text", {{"format", {{"type", "json_schema"}, {"name", "x"}}}}, "text.format.schema"},
      {"text", {{"format", {{"type", "json_object"}, {"schema", 3}}}}, "text.format.schema"},
      {"tools", Json::array({{{"type", "function"}}}), "tools[0].name"},
      {"tools", Json::array({{{"name", "f"}}}), "tools[0].type"},
      {"tools", Json::array({{{"function", {{"name", "f"}}}}}), "tools[0].type"},
      {"tools", Json::array({{{"type", ""}, {"name", "f"}}}), "tools[0].type"},
      {"reasoning", {{"effort", 3}}, "reasoning.effort"},
      {"text", {{"format", 3}}, "text.format"},
      {"temperature", -1, "temperature"}};
  for (const auto& [name, value, param] : bad) {
    const ApiError error = responses_refusal(responses_with(name, value));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, param) << value.dump();
    EXPECT_NE(error.message.find(param), std::string::npos) << error.message;
  }
}

}  // namespace
}  // namespace moeflux::serve
