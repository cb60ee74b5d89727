// What requests ask for, and what is refused with the name of its field.
#include "serve/openai/chat.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

Json hello() { return {{"messages", {{{"role", "user"}, {"content", "hello"}}}}}; }

Json with(const char* name, Json value) {
  Json body = hello();
  body[name] = std::move(value);
  return body;
}

ChatRequest decode(const Json& body, const RequestDefaults& defaults = {}) {
  auto decoded = decode_chat_request(body, defaults);
  const auto* error = std::get_if<ApiError>(&decoded);
  EXPECT_EQ(error, nullptr) << (error == nullptr ? "" : error->message);
  return error == nullptr ? std::get<ChatRequest>(std::move(decoded)) : ChatRequest{};
}

ApiError refusal(const Json& body) {
  auto decoded = decode_chat_request(body, {});
  const auto* error = std::get_if<ApiError>(&decoded);
  EXPECT_NE(error, nullptr) << body.dump();
  return error == nullptr ? ApiError{.status = 0} : *error;
}

TEST(DecodeChat, TakesTheDefaultsWhereNothingIsSaid) {
  RequestDefaults defaults;
  defaults.sampler.temperature = 0.3f;
  defaults.reasoning_tokens_max = 7;
  const ChatRequest request = decode(hello(), defaults);
  EXPECT_EQ(request.generation.sampler.temperature, 0.3f);
  EXPECT_EQ(request.generation.tokens_max, -1);
  EXPECT_EQ(request.generation.choices, 1);
  EXPECT_FALSE(request.generation.stream);
  EXPECT_EQ(request.reasoning_tokens_max, 7);
  EXPECT_EQ(request.top_logprobs, -1);
  EXPECT_TRUE(request.conversation.tools.is_null());
}

TEST(DecodeChat, TakesWhatIsSaid) {
  Json body = hello();
  body.update(Json{{"temperature", 0},
                   {"top_p", 0.5},
                   {"top_k", 3},
                   {"seed", 11},
                   {"n", 2},
                   {"stop", {"a", "b"}},
                   {"max_tokens", 5},
                   {"max_completion_tokens", 6},
                   {"stream", true},
                   {"stream_options", {{"include_usage", true}}},
                   {"logprobs", true},
                   {"top_logprobs", 4},
                   {"logit_bias", {{"12", -100}}},
                   {"presence_penalty", 0.5},
                   {"reasoning_effort", "low"},
                   {"chat_template_kwargs", {{"enable_thinking", false}}},
                   {"parallel_tool_calls", false},
                   {"unheard_of", 1},
                   {"user", "me"}});
  const ChatRequest request = decode(body);
  const SamplerOptions& sampler = request.generation.sampler;
  EXPECT_EQ(sampler.temperature, 0.0f);
  EXPECT_EQ(sampler.top_p, 0.5f);
  EXPECT_EQ(sampler.top_k, 3);
  EXPECT_EQ(sampler.seed, 11u);
  EXPECT_EQ(sampler.presence_penalty, 0.5f);
  EXPECT_EQ(sampler.repeat_last_n, -1);
  ASSERT_EQ(sampler.logit_bias.size(), 1u);
  EXPECT_EQ(sampler.logit_bias[0].token, 12);
  EXPECT_LT(sampler.logit_bias[0].bias, -1e30f);
  EXPECT_EQ(request.generation.choices, 2);
  EXPECT_EQ(request.generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.generation.tokens_max, 6);
  EXPECT_TRUE(request.generation.stream);
  EXPECT_TRUE(request.generation.include_usage);
  EXPECT_EQ(request.top_logprobs, 4);
  EXPECT_EQ(request.conversation.variables["reasoning_effort"], "low");
  EXPECT_EQ(request.conversation.variables["enable_thinking"], false);
  EXPECT_TRUE(request.one_call);
}

TEST(DecodeChat, NullCountsAsAbsent) {
  for (const char* name : {"temperature", "stop", "seed", "tools", "tool_choice", "n", "logit_bias",
                           "response_format", "stream_options", "max_tokens", "model"}) {
    decode(with(name, nullptr));
  }
}

TEST(DecodeChat, NamesTheFieldThatCannotBe) {
  const std::vector<std::pair<const char*, Json>> bad = {{"temperature", "hot"},
                                                         {"temperature", -1},
                                                         {"top_p", 1.5},
                                                         {"n", 0},
                                                         {"n", 9},
                                                         {"stop", 3},
                                                         {"stop", Json::array({1})},
                                                         {"max_tokens", "5"},
                                                         {"seed", 1.5},
                                                         {"stream", "yes"},
                                                         {"logit_bias", {{"x", 1}}},
                                                         {"tools", "all"},
                                                         {"top_logprobs", 3},
                                                         {"presence_penalty", 3},
                                                         {"chat_template_kwargs", 1}};
  for (const auto& [name, value] : bad) {
    const ApiError error = refusal(with(name, value));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, name) << value.dump();
    EXPECT_NE(error.message.find(name), std::string::npos);
  }
  EXPECT_EQ(refusal(with("stream_options", {{"include_usage", 1}})).param,
            "stream_options.include_usage");
}

TEST(DecodeChat, RefusesMessagesThatAreNone) {
  for (const Json& messages : {Json(), Json("hello"), Json::array()}) {
    EXPECT_EQ(refusal(with("messages", messages)).param, "messages");
  }
  const Json image = {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}};
  const ApiError error = refusal(with("messages", image));
  EXPECT_EQ(error.param, "messages[0].content[0]");
  EXPECT_EQ(error.code, "unsupported_parameter");
}

Json tools_of(const std::vector<std::string>& names, bool strict = false) {
  Json tools = Json::array();
  for (const std::string& name : names) {
    tools.push_back({{"type", "function"}, {"function", {{"name", name}, {"strict", strict}}}});
  }
  return tools;
}

TEST(DecodeChat, ALastMessageOfTheAssistantIsContinuedUnlessSaidOtherwise) {
  const auto body = [](const char* last, const Json& more) {
    Json made = hello();
    made["messages"].push_back({{"role", last}, {"content", "Mon"}});
    made.update(more);
    return made;
  };
  const auto rule = [](const ChatRequest& request) {
    return std::pair(request.conversation.add_generation_prompt,
                     request.conversation.continue_final_message);
  };
  const auto begins_a_turn = std::pair(true, false);
  const auto continues = std::pair(false, true);
  EXPECT_EQ(rule(decode(hello())), begins_a_turn);
  EXPECT_EQ(rule(decode(body("assistant", Json::object()))), continues);
  EXPECT_EQ(rule(decode(body("assistant", {{"continue_final_message", true}}))), continues);
  EXPECT_EQ(rule(decode(body("assistant", {{"continue_final_message", true},
                                           {"add_generation_prompt", false}}))),
            continues);
  EXPECT_EQ(rule(decode(body("assistant", {{"continue_final_message", false}}))), begins_a_turn);
  EXPECT_EQ(rule(decode(body("assistant", {{"add_generation_prompt", true}}))), begins_a_turn);
  EXPECT_EQ(rule(decode(body("assistant", {{"add_generation_prompt", false}}))),
            std::pair(false, false));
  Json calls = body("assistant", Json::object());
  calls["messages"].back()["tool_calls"] = Json::array({{{"function", {{"name", "f"}}}}});
  EXPECT_EQ(rule(decode(calls)), begins_a_turn);
  calls["continue_final_message"] = true;
  for (const Json& bad :
       {calls, body("user", {{"continue_final_message", true}}),
        body("assistant", {{"continue_final_message", true}, {"add_generation_prompt", true}}),
        body("assistant", {{"continue_final_message", "yes"}})}) {
    const ApiError error = refusal(bad);
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "continue_final_message") << bad.dump();
  }
}

TEST(DecodeChat, ReadsWhatAnAnswerIsHeldTo) {
  EXPECT_EQ(decode(with("response_format", {{"type", "text"}})).constraint.kind,
            ConstraintKind::kNone);
  EXPECT_EQ(decode(with("response_format", {{"type", "json_object"}})).constraint.kind,
            ConstraintKind::kJsonObject);
  const Json schema = {{"type", "integer"}};
  for (const Json& format :
       {Json{{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}},
        Json{{"type", "json_schema"}, {"schema", schema}}}) {
    const OutputConstraint read = decode(with("response_format", format)).constraint;
    EXPECT_EQ(read.kind, ConstraintKind::kJsonSchema);
    EXPECT_EQ(Json::parse(read.text), schema);
  }
  EXPECT_EQ(refusal(with("response_format", {{"type", "xml"}})).param, "response_format");
  EXPECT_EQ(refusal(with("response_format", {{"type", "json_schema"}})).param,
            "response_format.schema");
}

TEST(DecodeChat, ReadsWhichToolsHaveToBeCalled) {
  Json body = with("tools", tools_of({"f", "g"}));
  const Json named = {{"type", "function"}, {"function", {{"name", "g"}}}};
  const Json allowed = {{"type", "allowed_tools"},
                        {"allowed_tools", {{"mode", "auto"}, {"tools", Json::array({named})}}}};
  const std::vector<std::pair<Json, std::pair<bool, size_t>>> choices = {
      {"auto", {false, 0}}, {"required", {true, 0}}, {named, {true, 1}}, {allowed, {false, 1}}};
  for (const auto& [choice, expected] : choices) {
    body["tool_choice"] = choice;
    const ToolRule rule = decode(body).tool_rule;
    EXPECT_EQ(rule.required, expected.first) << choice;
    EXPECT_EQ(rule.names.size(), expected.second) << choice;
  }
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "h"}}}};
  EXPECT_EQ(refusal(body).param, "tool_choice");
  EXPECT_EQ(refusal(with("tool_choice", "required")).param, "tool_choice");
}

TEST(DecodeChat, TakesOneConstraint) {
  EXPECT_EQ(decode(with("grammar", "start: \"a\"")).constraint.kind, ConstraintKind::kLark);
  EXPECT_EQ(decode(with("regex", "a")).constraint.kind, ConstraintKind::kRegex);
  Json body = with("json_schema", {{"type", "null"}});
  EXPECT_EQ(decode(body).constraint.source, "json_schema");
  body["response_format"] = {{"type", "text"}};
  decode(body);
  body["response_format"] = {{"type", "json_object"}};
  EXPECT_EQ(refusal(body).param, "json_schema");
}

AnswerPart answer_of(FinishReason reason) {
  AnswerPart answer{.content = "hi"};
  answer.statistics.reason = reason;
  answer.statistics.prompt_tokens = 5;
  answer.statistics.cached_tokens = 2;
  answer.statistics.generated_tokens = 3;
  return answer;
}

TEST(FinishReasons, AreThoseOfTheProtocol) {
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kStopToken)), "stop");
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kStopString)), "stop");
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kTokensMax)), "length");
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kContextFull)), "length");
  AnswerPart called = answer_of(FinishReason::kStopToken);
  called.complete_calls = 1;
  EXPECT_EQ(finish_reason(called), "tool_calls");
}

TEST(Usage, CountsThePromptOnce) {
  const Json usage =
      usage_json({answer_of(FinishReason::kStopToken), answer_of(FinishReason::kStopToken)});
  EXPECT_EQ(usage["prompt_tokens"], 5);
  EXPECT_EQ(usage["completion_tokens"], 6);
  EXPECT_EQ(usage["total_tokens"], 11);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 2);
}

}  // namespace
}  // namespace moeflux::serve
