// OpenAI's requests, and refusals with the name of the field.
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
                                                         {"n", 129},
                                                         {"stop", 3},
                                                         {"stop", Json::array({1})},
                                                         {"max_tokens", "5"},
                                                         {"seed", 1.5},
                                                         {"stream", "yes"},
                                                         {"logit_bias", {{"x", "much"}}},
                                                         {"logit_bias", {{"-1", 1}}},
                                                         {"logit_bias", {{"3", 1e57}}},
                                                         {"logit_bias", Json::array({3})},
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

TEST(DecodeChat, OneMessageOfTheAssistantIsContinuedNotTwo) {
  Json body = hello();
  for (const char* text : {"a", "b"}) {
    body["messages"].push_back({{"role", "assistant"}, {"content", text}});
  }
  EXPECT_EQ(refusal(body).param, "messages");
  body["add_generation_prompt"] = true;
  decode(body);
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
  calls["messages"].back()["tool_calls"] =
      Json::array({{{"function", {{"name", "f"}, {"arguments", "{}"}}}}});
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
            "response_format.json_schema");
}

TEST(DecodeChat, ASchemaBesideJsonObjectIsHeldTo) {
  const Json schema = {{"type", "object"}, {"required", {"n"}}};
  const OutputConstraint read =
      decode(with("response_format", {{"type", "json_object"}, {"schema", schema}})).constraint;
  EXPECT_EQ(read.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(read.source, "response_format.schema");
  EXPECT_EQ(Json::parse(read.text), schema);
  for (const Json& none : {Json(), Json::object()}) {
    EXPECT_EQ(decode(with("response_format", {{"type", "json_object"}, {"schema", none}}))
                  .constraint.kind,
              ConstraintKind::kJsonObject);
  }
  for (const Json& bad : {Json(123), Json("x"), Json(""), Json::array(), Json::array({1})}) {
    EXPECT_EQ(refusal(with("response_format", {{"type", "json_object"}, {"schema", bad}})).param,
              "response_format.schema");
  }
  EXPECT_EQ(refusal(with("response_format", {{"type", "json_object"}, {"json_schema", 1}})).param,
            "response_format.json_schema.schema");
}

TEST(DecodeChat, ReadsTheConstraintsOfVllm) {
  const auto held = [](const char* name, const Json& value) {
    return decode(with(name, value)).constraint;
  };
  const Json schema = {{"type", "integer"}};
  EXPECT_EQ(held("guided_json", schema).kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(Json::parse(held("guided_json", schema.dump()).text), schema);
  EXPECT_EQ(held("guided_regex", "(zq){3}").kind, ConstraintKind::kRegex);
  EXPECT_EQ(held("guided_grammar", "start: \"a\"").kind, ConstraintKind::kLark);
  EXPECT_EQ(held("guided_choice", {"a.b", "c"}).text, "a\\.b|c");
  const auto inner = [&](const char* name, const Json& value) {
    return held("structured_outputs", {{name, value}});
  };
  EXPECT_EQ(inner("json", schema).source, "structured_outputs.json");
  EXPECT_EQ(inner("regex", "a").kind, ConstraintKind::kRegex);
  EXPECT_EQ(inner("choice", {"a"}).source, "structured_outputs.choice");
  EXPECT_EQ(inner("grammar", "start: \"a\"").kind, ConstraintKind::kLark);
  EXPECT_EQ(inner("json_object", true).kind, ConstraintKind::kJsonObject);
  for (const Json& bad : {Json::object(), Json{{"unheard_of", 1}}, Json{{"structural_tag", "x"}},
                          Json{{"json", schema}, {"unheard_of", 1}}, Json{{"choice", "a"}},
                          Json{{"choice", Json::array()}}}) {
    const ApiError error = refusal(with("structured_outputs", bad));
    EXPECT_TRUE(error.param.starts_with("structured_outputs.")) << bad << " " << error.param;
  }
  Json two = with("guided_regex", "a");
  two["guided_json"] = schema;
  EXPECT_EQ(refusal(two).code, "invalid_value");
}

TEST(DecodeChat, ReadsLimitsUnderTheNamesOfVllmAndLlamaCpp) {
  Json body = hello();
  body.update(Json{{"n_predict", 5},
                   {"min_tokens", 2},
                   {"stop_token_ids", {7, 8}},
                   {"allowed_token_ids", {7, 9}},
                   {"repetition_penalty", 1.5},
                   {"include_stop_str_in_output", true},
                   {"enable_thinking", false},
                   {"samplers", {"top_k", "temperature"}},
                   {"logit_bias", Json::array({Json::array({3, false}), Json::array({4, 2})})},
                   {"thinking_token_budget", 9},
                   {"documents", Json::array({{{"text", "d"}}})}});
  const ChatRequest request = decode(body);
  const GenerationFields& generation = request.generation;
  EXPECT_EQ(generation.tokens_max, 5);
  EXPECT_EQ(generation.tokens_min, 2);
  EXPECT_EQ(generation.stop_tokens, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(generation.allowed_tokens, (std::vector<TokenId>{7, 9}));
  EXPECT_EQ(generation.sampler.repeat_penalty, 1.5f);
  EXPECT_EQ(generation.sampler.repeat_last_n, -1);
  EXPECT_TRUE(generation.includes_stop);
  EXPECT_EQ(generation.sampler.samplers,
            (std::vector<SamplerStep>{SamplerStep::kTopK, SamplerStep::kTemperature}));
  ASSERT_EQ(generation.sampler.logit_bias.size(), 2u);
  EXPECT_LT(generation.sampler.logit_bias[0].bias, -1e30f);
  EXPECT_EQ(generation.sampler.logit_bias[1].bias, 2.0f);
  EXPECT_EQ(request.reasoning_tokens_max, 9);
  EXPECT_EQ(request.conversation.variables["enable_thinking"], false);
  EXPECT_EQ(request.conversation.documents.size(), 1u);
  EXPECT_TRUE(generation.ignored.empty());
  EXPECT_EQ(refusal(with("samplers", {"magic"})).param, "samplers");
  EXPECT_EQ(refusal(with("stop_token_ids", {"a"})).param, "stop_token_ids[0]");
  EXPECT_EQ(refusal(with("allowed_token_ids", Json::array())).param, "allowed_token_ids");
}

Json talk(const Json& message) {
  Json body = hello();
  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "user"}, {"content", "r"}});
  return body;
}

TEST(DecodeChat, CallsAndResultsOfTheOldInterfaceAreCallsAndResults) {
  Json body = hello();
  const Json call = {{"name", "find_fox"}, {"arguments", "{}"}};
  body["messages"].push_back(
      {{"role", "assistant"}, {"content", nullptr}, {"function_call", call}});
  body["messages"].push_back({{"role", "function"}, {"name", "find_fox"}, {"content", "R"}});
  const Json messages = decode(body).conversation.messages;
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"], call);
  EXPECT_FALSE(messages[1].contains("function_call"));
  EXPECT_EQ(messages[2]["role"], "tool");
  EXPECT_EQ(messages[2]["tool_call_id"], messages[1]["tool_calls"][0]["id"]);
  const Json none = {{"role", "assistant"}, {"content", "a"}, {"function_call", nullptr}};
  EXPECT_FALSE(decode(talk(none)).conversation.messages[1].contains("tool_calls"));
  EXPECT_EQ(refusal(talk({{"role", "assistant"}, {"function_call", "x"}})).param,
            "messages[1].function_call");
}

TEST(DecodeChat, ARoleThatNobodyKnowsIsRefusedByName) {
  EXPECT_EQ(refusal(talk({{"role", "critic"}, {"content", "w"}})).param, "messages[1].role");
  EXPECT_EQ(refusal(talk({{"content", "w"}})).param, "messages[1].role");
  EXPECT_EQ(refusal(talk("w")).param, "messages[1]");
  decode(talk({{"role", "developer"}, {"content", "w"}}));
}

TEST(DecodeChat, ImagesBeforeTheQuestionAreALineOfText) {
  const Json image = {{"type", "image_url"}, {"image_url", {{"url", "data:,"}}}};
  const Json parts = Json::array({{{"type", "text"}, {"text", "see"}}, image});
  for (const char* role : {"user", "tool"}) {
    const Json read = decode(talk({{"role", role}, {"content", parts}})).conversation.messages;
    EXPECT_EQ(read[1]["content"][1]["type"], "text");
    EXPECT_NE(read[1]["content"][1]["text"].get<std::string>().find("image"), std::string::npos);
  }
  Json asked = talk({{"role", "assistant"}, {"content", "a"}});
  asked["messages"].back()["content"] = parts;
  asked["messages"].push_back({{"role", "assistant"}, {"content", "b"}});
  EXPECT_EQ(refusal(asked).param, "messages[2].content[1]");
}

TEST(DecodeChat, MediaOfEveryKindBeforeTheQuestionIsALineOfText) {
  for (const char* type : {"image_embeds", "audio_embeds", "input_audio", "video_url", "file"}) {
    const Json part = {{"type", type}, {type, "x"}};
    for (const char* role : {"user", "assistant", "tool"}) {
      Json asked = talk({{"role", role}, {"content", Json::array({part})}});
      asked["messages"].push_back({{"role", "user"}, {"content", "go on"}});
      const Json read = decode(asked).conversation.messages;
      EXPECT_NE(read[1]["content"][0].value("text", "").find("left out"), std::string::npos)
          << type;
    }
  }
}

TEST(DecodeChat, PartsOfThinkingAreReasoning) {
  const Json said = {{"type", "text"}, {"text", "A fox."}};
  for (const char* thought :
       {R"({"type": "thinking", "thinking": "Hm."})",
        R"({"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "closed": true})",
        R"({"type": "reasoning", "reasoning": "Hm."})"}) {
    const Json part = Json::parse(thought);
    const Json read = decode(talk({{"role", "assistant"}, {"content", Json::array({part, said})}}))
                          .conversation.messages[1];
    EXPECT_EQ(read["reasoning_content"], "Hm.") << thought;
    EXPECT_EQ(read["content"], Json::array({said}));
    const Json alone =
        decode(
            talk({{"role", "assistant"}, {"reasoning", "So."}, {"content", Json::array({part})}}))
            .conversation.messages[1];
    EXPECT_EQ(alone["reasoning"], "So.Hm.");
    EXPECT_EQ(alone["content"], "");
    EXPECT_EQ(refusal(talk({{"role", "user"}, {"content", Json::array({part})}})).param,
              "messages[1].content[0]");
  }
}

TEST(DecodeChat, AMessagesOwnRefusalAudioAndImagesAreText) {
  const auto content = [](Json message) {
    return decode(talk(std::move(message))).conversation.messages[1]["content"];
  };
  const Json own = {{"role", "assistant"}, {"content", nullptr}};
  const auto own_with = [&](const char* name, Json value) {
    Json message = own;
    message[name] = std::move(value);
    return message;
  };
  EXPECT_EQ(content(own_with("refusal", "no way")), "no way");
  EXPECT_EQ(content({{"role", "assistant"}, {"content", "a"}, {"refusal", nullptr}}), "a");
  const std::string audio = "[audio left out: this model reads text alone]";
  EXPECT_EQ(content(own_with("audio", {{"id", "audio_1"}})), audio);
  EXPECT_EQ(content(own_with("audio", {{"id", "audio_1"}, {"transcript", "hi"}})), "hi");
  EXPECT_EQ(content(own_with("audio", nullptr)), Json());
  const std::string image = "[image left out: this model reads text alone]";
  Json seen = {{"role", "user"}, {"content", "see"}, {"images", {"aa", "bb"}}};
  EXPECT_EQ(content(seen), "see\n" + image + "\n" + image);
  seen["content"] = Json::array({{{"type", "text"}, {"text", "see"}}});
  EXPECT_EQ(content(seen)[2]["text"], image);
  Json asked = hello();
  asked["messages"][0]["images"] = Json::array({"aa"});
  EXPECT_EQ(refusal(asked).param, "messages[0].images");
  asked["messages"][0]["images"] = "aa";
  EXPECT_EQ(refusal(asked).param, "messages[0].images");
}

TEST(DecodeChat, AToolWithoutAFunctionIsRefusedByName) {
  const Json flat = {{"type", "function"}, {"name", "flat"}, {"parameters", {{"type", "object"}}}};
  Json body = with("tools", Json::array({flat}));
  body["tool_choice"] = "required";
  const ChatRequest request = decode(body);
  EXPECT_EQ(request.conversation.tools[0]["function"]["name"], "flat");
  EXPECT_FALSE(request.conversation.tools[0]["function"].contains("type"));
  for (const Json& tool : {Json("x"), Json{{"type", "function"}}, Json{{"type", "web_search"}},
                           Json{{"type", "function"}, {"function", {{"name", 3}}}}}) {
    body["tools"] = Json::array({tool});
    EXPECT_TRUE(refusal(body).param.starts_with("tools[0]")) << tool;
  }
  body.erase("tool_choice");
  body["tools"] = Json::array({{{"type", "web_search"}}, flat});
  const ChatRequest rest = decode(body);
  EXPECT_EQ(rest.dropped_tools, std::vector<std::string>{"web_search"});
  EXPECT_EQ(rest.conversation.tools.size(), 1u);
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

TEST(DecodeChat, ErrorsAreInTheClientsOwnNames) {
  EXPECT_EQ(refusal(with("repetition_penalty", 0)).param, "repetition_penalty");
  EXPECT_EQ(refusal(with("repeat_penalty", 0)).param, "repeat_penalty");
  EXPECT_EQ(refusal(with("response_format", {{"type", "json_schema"}})).param,
            "response_format.json_schema");
  for (const char* role : {"user", "assistant", "tool", "function", "system"}) {
    for (const Json& content : {Json{{"a", 1}}, Json(5), Json(true)}) {
      Json body = hello();
      body["messages"].push_back({{"role", role}, {"content", content}});
      EXPECT_EQ(refusal(body).param, "messages[1].content") << role;
    }
  }
}

TEST(DecodeChat, NamesOfOtherServersThatHoldOrEndATextAreServedOrRefused) {
  EXPECT_EQ(decode(with("guided_json_object", true)).constraint.kind, ConstraintKind::kJsonObject);
  for (const char* name : {"ebnf", "stop_regex", "grammar_string", "regex_pattern",
                           "stop_sequences", "banned_strings", "max_new_tokens"}) {
    EXPECT_EQ(refusal(with(name, "a")).param, name);
  }
  EXPECT_EQ(refusal(with("no_stop_trim", true)).param, "no_stop_trim");
  EXPECT_TRUE(decode(with("no_stop_trim", false)).generation.ignored.empty());
}

TEST(DecodeChat, AToolThatIsNamedIsCalledOnce) {
  Json body = with("tools", tools_of({"f", "g"}));
  const Json named = {{"type", "function"}, {"function", {{"name", "g"}}}};
  const Json flat = {{"type", "function"}, {"name", "g"}};
  const Json allowed = {
      {"type", "allowed_tools"}, {"mode", "required"}, {"tools", Json::array({named})}};
  for (const auto& [choice, once] : std::vector<std::pair<Json, bool>>{
           {named, true}, {flat, true}, {"required", false}, {"auto", false}, {allowed, false}}) {
    body["tool_choice"] = choice;
    EXPECT_EQ(decode(body).calls_once(), once) << choice;
    EXPECT_FALSE(decode(body).one_call) << choice;
  }
  body.erase("tool_choice");
  body["function_call"] = {{"name", "g"}};
  EXPECT_TRUE(decode(body).calls_once());
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

}  // namespace
}  // namespace moeflux::serve
