// The service as a host that embeds it sees it: requests in, answers out, no sockets.
#include "serve/service.h"

#include <gtest/gtest.h>

#include <map>

#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

TEST_F(ServiceTest, AnswersAQuestionWholeAndInPieces) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("Once upon a time", 20);
  const auto whole = post(*service, "/v1/chat/completions", body);
  EXPECT_EQ(whole->status(), 200);
  const Json answer = whole->json();
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "fable-20m");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 20);
  EXPECT_EQ(answer["moeflux"]["seed"], 7);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const auto stream = post(*service, "/v1/chat/completions", body);
  const std::vector<Json> frames = stream->frames();
  ASSERT_GT(frames.size(), 4u);
  EXPECT_EQ(frames.front()["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (const Json& frame : frames) {
    EXPECT_EQ(frame["id"], frames.front()["id"]);
    EXPECT_EQ(frame["object"], "chat.completion.chunk");
    if (frame["choices"].empty()) continue;
    const Json& delta = frame["choices"][0]["delta"];
    if (delta.value("content", Json()).is_string()) text += delta["content"].get<std::string>();
  }
  EXPECT_EQ(text, answer["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_EQ(frames.back()["usage"]["completion_tokens"], 20);
  EXPECT_EQ(frames[frames.size() - 2]["choices"][0]["finish_reason"], "length");
}

TEST_F(ServiceTest, AnAnswerIsTheSameWhoeverElseAsks) {
  if (testing::without_engine()) return;
  std::map<int, std::string> alone;
  for (int i = 0; i < 6; ++i) {
    const auto service = start();
    alone[i] = content(*post(*service, "/v1/chat/completions",
                             question("Tell me story " + std::to_string(i), 12)));
  }
  const auto service = start(
      {.scheduler = {.sharing = Sharing::kSlices, .slice_time = std::chrono::milliseconds(0)}});
  std::vector<std::shared_ptr<MemoryResponse>> answers;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 6; ++i) {
      answers.push_back(post(*service, "/v1/chat/completions",
                             question("Tell me story " + std::to_string(i), 12)));
    }
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(content(*answers[i]), alone[static_cast<int>(i % 6)]) << i;
  }
}

TEST_F(ServiceTest, ASecondTurnEvaluatesWhatIsNew) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("Once upon a time there was a fox", 10);
  const Json first = post(*service, "/v1/chat/completions", body)->json();
  body["messages"].push_back(first["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  const Json usage = post(*service, "/v1/chat/completions", body)->json()["usage"];
  // Generated text is encoded again, perhaps into other tokens: its first stay.
  EXPECT_GE(usage["prompt_tokens_details"]["cached_tokens"].get<int>(),
            first["usage"]["prompt_tokens"].get<int>() - 1);
}

TEST_F(ServiceTest, ChoicesAreThoseOfTheSeedsBehindEachOther) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("Once", 8);
  body["n"] = 3;
  const Json three = post(*service, "/v1/chat/completions", body)->json()["choices"];
  ASSERT_EQ(three.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    Json one = question("Once", 8);
    one["seed"] = 7 + i;
    EXPECT_EQ(three[i]["index"], i);
    EXPECT_EQ(three[i]["message"]["content"],
              content(*post(*service, "/v1/chat/completions", one)));
  }
}

TEST_F(ServiceTest, CompletionsScoreWhatTheyEcho) {
  const auto service = start();
  const Json body = {
      {"prompt", "Once upon a time"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}};
  const auto response = post(*service, "/v1/completions", body);
  const Json choice = response->json()["choices"][0];
  EXPECT_EQ(choice["text"], "Once upon a time");
  const Json& scores = choice["logprobs"]["token_logprobs"];
  ASSERT_EQ(scores.size(), 4u);
  EXPECT_TRUE(scores[0].is_null());
  for (size_t i = 1; i < scores.size(); ++i) EXPECT_LT(scores[i].get<double>(), 0.0);
  // The same prompt as ids, behind a kept one.
  Json ids = body;
  ids["prompt"] =
      Json::parse(post(*service, "/tokenize", {{"content", "Once upon a time"}})->wait())["tokens"];
  EXPECT_EQ(post(*service, "/v1/completions", ids)->json()["choices"][0]["logprobs"],
            choice["logprobs"]);
}

TEST_F(ServiceTest, StopStringsEndAnAnswerBeforeThem) {
  const auto service = start();
  Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 16}, {"seed", 3}};
  const std::string text =
      post(*service, "/v1/completions", body)->json()["choices"][0]["text"].get<std::string>();
  const std::string stop = text.substr(text.size() / 2, 3);
  body["stop"] = stop;
  const Json choice = post(*service, "/v1/completions", body)->json()["choices"][0];
  EXPECT_EQ(choice["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(ServiceTest, AStopStringThatTheLastTokenCompletesEndsAnAnswer) {
  if (!has_template_engine()) return;
  const auto service = start();
  Json body = question("Once upon a time", 16);
  const Json cut = post(*service, "/v1/chat/completions", body)->json()["choices"][0];
  EXPECT_EQ(cut["finish_reason"], "length");
  const std::string text = cut["message"]["content"];
  ASSERT_GT(text.size(), 6u);
  body["stop"] = text.substr(text.size() - 6);
  const Json choice = post(*service, "/v1/chat/completions", body)->json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], text.substr(0, text.size() - 6));
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(ServiceTest, ASlowReaderGetsEverythingAndHoldsNobodyUp) {
  const auto service = start();
  const Json body = {{"prompt", "Once"}, {"max_tokens", 12}, {"seed", 1}, {"stream", true}};
  const auto text = [](const std::vector<Json>& frames) {
    std::string joined;
    for (const Json& frame : frames) joined += frame["choices"][0]["text"].get<std::string>();
    return joined;
  };
  const std::string expected = text(post(*service, "/v1/completions", body)->frames());
  auto slow = std::make_shared<MemoryResponse>();
  slow->be_slow();
  service->handle({.method = "POST", .path = "/v1/completions", .body = body.dump()}, slow);
  EXPECT_EQ(text(post(*service, "/v1/completions", body)->frames()), expected);
  slow->read_on();
  EXPECT_EQ(text(slow->frames()), expected);
}

TEST_F(ServiceTest, WhoLeavesIsCancelled) {
  const auto service = start({.scheduler = {.active_max = 1}});
  const Json endless = {{"prompt", "Once"}, {"max_tokens", -1}, {"ignore_eos", true}};
  std::vector<std::shared_ptr<MemoryResponse>> leavers;
  for (int i = 0; i < 4; ++i) leavers.push_back(post(*service, "/v1/completions", endless));
  for (const auto& leaver : leavers) leaver->leave();
  const Json body = {{"prompt", "Once"}, {"max_tokens", 2}};
  EXPECT_EQ(post(*service, "/v1/completions", body)->status(), 200);
}

TEST_F(ServiceTest, AFullQueueIsToldWithATimeToComeAgain) {
  const auto service = start({.scheduler = {.queue_max = 0, .active_max = 1}});
  auto slow = std::make_shared<MemoryResponse>();
  slow->be_slow();  // holds the only place
  const Json body = {
      {"prompt", "Once"}, {"max_tokens", 100}, {"stream", true}, {"ignore_eos", true}};
  service->handle({.method = "POST", .path = "/v1/completions", .body = body.dump()}, slow);
  const auto refused = post(*service, "/v1/completions", body);
  EXPECT_EQ(refused->status(), 429);
  EXPECT_EQ(refused->header("Retry-After"), "1");
  EXPECT_EQ(refused->json()["error"]["type"], "rate_limit_error");
  slow->leave();
}

TEST_F(ServiceTest, WhatIsWrongIsNamed) {
  const auto service = start();
  struct Case {
    std::string path;
    std::string body;
    int status;
    std::string words;
  };
  const std::string many(600, 'x');
  const std::vector<Case> cases = {
      {"/v1/completions", "{", 400, "not valid JSON"},
      {"/v1/completions", "[]", 400, "expected an object"},
      {"/v1/completions", "{}", 400, "prompt is absent"},
      {"/v1/completions", R"({"prompt": "a", "temperature": "hot"})", 400, "temperature is"},
      {"/v1/completions", R"({"prompt": [99999999]})", 400, "prompt"},
      {"/v1/completions", R"({"prompt": "a", "model": "other"})", 404, "no model \"other\""},
      {"/v1/completions", R"({"prompt": "a", "suffix": "b"})", 400, "suffix needs"},
      {"/v1/completions", Json({{"prompt", "one two " + many + many}}).dump(), 400,
       "available context"},
      {"/v1/chat/completions", R"({"messages": 3})", 400, "messages is 3"},
      {"/v1/embeddings", "{}", 400, "input is absent"},
      {"/v1/audio/speech", "{}", 404, "not offered"},
      {"/v1/responses/compact", R"({"model":"x","input":"x"})", 404, "not offered"},
      {"/v1/nothing", "{}", 404, "no POST /v1/nothing"},
      {"/metrics", "{}", 405, "takes GET"},
      {"/detokenize", R"({"tokens": [-1]})", 400, "tokens[0] is -1"},
      {"/tokenize", "{}", 400, "content is absent"},
  };
  for (const Case& one : cases) {
    auto response = std::make_shared<MemoryResponse>();
    service->handle({.method = "POST", .path = one.path, .body = one.body}, response);
    const bool needs_template = one.path == "/v1/chat/completions";
    if (needs_template && !has_template_engine()) continue;
    EXPECT_EQ(response->status(), one.status) << one.path << " " << one.body;
    const std::string message = response->json()["error"]["message"].get<std::string>();
    EXPECT_NE(message.find(one.words), std::string::npos) << message;
  }
}

TEST_F(ServiceTest, TellsWhatItIs) {
  const auto service = start({.model_name = "teller", .aliases = {"gpt-4o"}});
  EXPECT_EQ(get(*service, "/health")->json()["status"], "ok");
  EXPECT_EQ(get(*service, "/v1/models")->json()["data"][0]["id"], "teller");
  EXPECT_EQ(get(*service, "/props")->json()["default_generation_settings"]["n_ctx"], 256);
  const Json slots = get(*service, "/slots")->json();
  EXPECT_FALSE(slots.empty());
  for (const Json& slot : slots) EXPECT_EQ(slot["is_processing"], false);
  EXPECT_TRUE(get(*service, "/openapi.json")->json()["paths"].contains("/v1/chat/completions"));
  const Json body = {{"model", "gpt-4o"}, {"prompt", "Once"}, {"max_tokens", 3}};
  EXPECT_EQ(post(*service, "/completions", body)->json()["model"], "teller");
  const std::string metrics = get(*service, "/metrics")->wait();
  EXPECT_NE(metrics.find("\nllamacpp:tokens_predicted_total 3\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\nmoeflux_step_texts_bucket{le=\"256\"} 3\n"), std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("\nmoeflux_step_texts_count 3\n"), std::string::npos) << metrics;
  EXPECT_EQ(metrics.find("\nmoeflux_decode_bytes_total 0\n"), std::string::npos) << metrics;
  const Json back =
      post(*service, "/detokenize", post(*service, "/tokenize", {{"content", "a fox"}})->json())
          ->json();
  EXPECT_EQ(back["content"], "a fox");
}

TEST_F(ServiceTest, TheTemplateIsShownWithoutAnAnswer) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("hi", 1);
  EXPECT_EQ(post(*service, "/apply-template", body)->json()["prompt"], "user: hi\nassistant:");
  body["add_generation_prompt"] = false;
  EXPECT_EQ(post(*service, "/apply-template", body)->json()["prompt"], "user: hi\n");
  EXPECT_GT(post(*service, "/v1/chat/completions/input_tokens", body)->json()["input_tokens"], 3);
  body["messages"].push_back({{"role", "assistant"}, {"content", "Mon"}});
  EXPECT_EQ(post(*service, "/apply-template", body)->json()["prompt"],
            "user: hi\nassistant: Mon\n");
  body["continue_final_message"] = true;
  EXPECT_EQ(post(*service, "/apply-template", body)->json()["prompt"], "user: hi\nassistant: Mon");
}

// Renders calls as a family of models writes them.
constexpr const char* kCallTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}<tool_call>\n"
    "{{ c.function | tojson }}\n</tool_call>{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}";

Json schema_format() {
  const Json schema = {{"type", "object"},
                       {"properties",
                        {{"n", {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}}},
                         {"kind", {{"enum", Json::array({"fox", "king"})}}}}},
                       {"required", Json::array({"n", "kind"})},
                       {"additionalProperties", false}};
  return {{"type", "json_schema"},
          {"json_schema", {{"name", "a"}, {"strict", true}, {"schema", schema}}}};
}

Json weather_tool(bool strict) {
  return {{"type", "function"},
          {"function",
           {{"name", "weather"},
            {"strict", strict},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"days", {{"type", "integer"}, {"minimum", 1}, {"maximum", 7}}}}},
              {"required", Json::array({"days"})},
              {"additionalProperties", false}}}}}};
}

TEST_F(ServiceTest, AnswersAreHeldToASchemaWhoeverElseAsks) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto ask = [&](Service& service, int seed) {
    Json body = question("Once upon a time", 600);  // 40 blanks may stand in each of ten places
    body["temperature"] = 1.5;
    body["seed"] = seed;
    body["response_format"] = schema_format();
    return post(service, "/v1/chat/completions", body);
  };
  std::vector<std::string> alone;
  for (int seed = 0; seed < 4; ++seed) {
    const auto service = start();
    const Json answer = ask(*service, seed)->json();
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    alone.push_back(answer["choices"][0]["message"]["content"].get<std::string>());
    const Json document = Json::parse(alone.back(), nullptr, false);
    ASSERT_TRUE(document.is_object()) << alone.back();
    EXPECT_EQ(document.size(), 2u) << alone.back();
    EXPECT_LE(document["n"].get<double>(), 99) << alone.back();
    EXPECT_TRUE(document["kind"] == "fox" || document["kind"] == "king") << alone.back();
  }
  const auto service = start(
      {.scheduler = {.sharing = Sharing::kSlices, .slice_time = std::chrono::milliseconds(0)}});
  std::vector<std::shared_ptr<MemoryResponse>> answers;
  for (int seed = 0; seed < 4; ++seed) answers.push_back(ask(*service, seed));
  for (size_t seed = 0; seed < 4; ++seed) EXPECT_EQ(content(*answers[seed]), alone[seed]) << seed;
}

TEST_F(ServiceTest, AHeldAnswerThatIsCutIsSaidToBe) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto service = start();
  Json body = question("Once upon a time", 3);
  body["response_format"] = schema_format();
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->json()["choices"][0]["finish_reason"],
            "length");
}

TEST_F(ServiceTest, CallsThatHaveToComeCome) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto service = start({.template_text = kCallTemplate});
  Json body = question("What is the weather?", 150);
  body["temperature"] = 1.5;
  body["parallel_tool_calls"] = false;
  for (const bool strict : {true, false}) {
    body["tools"] = Json::array({weather_tool(strict)});
    for (const Json& choice :
         {Json("required"), Json{{"type", "function"}, {"function", {{"name", "weather"}}}}}) {
      body["tool_choice"] = choice;
      const Json answer = post(*service, "/v1/chat/completions", body)->json();
      const Json& calls = answer["choices"][0]["message"]["tool_calls"];
      EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls") << answer;
      ASSERT_EQ(calls.size(), 1u) << answer;
      EXPECT_EQ(calls[0]["function"]["name"], "weather");
      const Json arguments = Json::parse(calls[0]["function"]["arguments"].get<std::string>());
      EXPECT_GE(arguments["days"].get<int>(), 1);
      EXPECT_LE(arguments["days"].get<int>(), 7);
    }
  }
}

// kTemplate shows neither tools nor calls.
TEST_F(ServiceTest, ATemplateWithoutToolsHasThemAllTheSame) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto service = start();
  Json body = question("What is the weather?", 150);
  body["temperature"] = 1.5;
  body["parallel_tool_calls"] = false;
  // The context of these tests is short.
  const Json days = {{"type", "object"},
                     {"properties", {{"days", {{"enum", {1, 2}}}}}},
                     {"required", Json::array({"days"})},
                     {"additionalProperties", false}};
  body["tools"] = Json::array(
      {{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", days}}}}});
  const auto prompt = post(*service, "/apply-template", body)->json()["prompt"].get<std::string>();
  EXPECT_NE(prompt.find("\"name\":\"weather\""), std::string::npos) << prompt;
  for (const Json& choice :
       {Json("required"), Json{{"type", "function"}, {"function", {{"name", "weather"}}}}}) {
    body["tool_choice"] = choice;
    const Json answer = post(*service, "/v1/chat/completions", body)->json();
    ASSERT_TRUE(answer.contains("choices")) << answer;
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls") << answer;
    const Json& calls = answer["choices"][0]["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 1u) << answer;
    EXPECT_EQ(calls[0]["function"]["name"], "weather");
    const Json arguments = Json::parse(calls[0]["function"]["arguments"].get<std::string>());
    EXPECT_TRUE(arguments["days"].is_number_integer()) << answer;
  }
  body["stream"] = true;
  std::string arguments;
  for (const Json& frame : post(*service, "/v1/chat/completions", body)->frames()) {
    ASSERT_TRUE(frame.contains("choices")) << frame;
    const Json& delta = frame["choices"][0]["delta"];
    EXPECT_TRUE(!delta.contains("content") || delta["content"].is_null()) << frame;
    if (!delta.contains("tool_calls")) continue;
    arguments += delta["tool_calls"][0]["function"]["arguments"].get<std::string>();
  }
  EXPECT_TRUE(Json::parse(arguments)["days"].is_number_integer()) << arguments;
}

TEST_F(ServiceTest, ASchemaBesideJsonObjectIsHeldToInEveryCompletion) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto service = start();
  Json format = {{"type", "json_object"},
                 {"schema",
                  {{"type", "object"},
                   {"properties", {{"n", {{"const", 42}}}}},
                   {"required", {"n"}},
                   {"additionalProperties", false}}}};
  Json chat = question("weather", 200);
  Json plain = {{"prompt", "weather"}, {"max_tokens", 200}, {"seed", 1}};
  chat["response_format"] = plain["response_format"] = format;
  const Json expected = {{"n", 42}};
  EXPECT_EQ(Json::parse(content(*post(*service, "/v1/chat/completions", chat))), expected);
  const Json answer = post(*service, "/v1/completions", plain)->json();
  EXPECT_EQ(Json::parse(answer["choices"][0]["text"].get<std::string>()), expected);
  const Json native = post(*service, "/completion", plain)->json();
  EXPECT_EQ(Json::parse(native["content"].get<std::string>()), expected);
  format["schema"] = 123;
  chat["response_format"] = plain["response_format"] = format;
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", chat), std::pair("/v1/completions", plain),
        std::pair("/completion", plain)}) {
    const auto refused = post(*service, path, body);
    EXPECT_EQ(refused->status(), 400) << path;
    EXPECT_EQ(refused->json()["error"]["param"], "response_format.schema") << path;
  }
}

TEST_F(ServiceTest, TheConstraintsOfVllmHoldAText) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto service = start();
  const Json schema = {{"type", "object"},
                       {"properties", {{"n", {{"const", 42}}}}},
                       {"required", {"n"}},
                       {"additionalProperties", false}};
  const auto said = [&](const char* name, const Json& value) {
    Json body = question("Tell me of the castle.", 200);
    body[name] = value;
    return content(*post(*service, "/v1/chat/completions", body));
  };
  EXPECT_EQ(said("guided_regex", "(zq){3}"), "zqzqzq");
  EXPECT_EQ(said("structured_outputs", {{"regex", "(zq){3}"}}), "zqzqzq");
  EXPECT_TRUE(said("guided_choice", {"zq-yes", "zq-no"}).starts_with("zq-"));
  EXPECT_EQ(Json::parse(said("guided_json", schema)), (Json{{"n", 42}}));
}

TEST_F(ServiceTest, TextsAreHeldToGrammarsToo) {
  if (!has_constraints()) return;
  const auto service = start();
  const std::vector<std::pair<const char*, Json>> held = {
      {"regex", "[0-9]{3}-[a-f]{2}"},
      {"grammar", "start: /[0-9]{3}/ \"-\" /[a-f]{2}/"},
      {"json_schema", {{"type", "string"}, {"pattern", "^[0-9]{3}-[a-f]{2}$"}}}};
  for (const auto& [name, value] : held) {
    const auto answer = post(*service, "/v1/completions",
                             {{"prompt", "One day"}, {"max_tokens", 50}, {name, value}});
    ASSERT_EQ(answer->status(), 200) << answer->wait();
    const Json choice = answer->json()["choices"][0];
    const auto text = choice["text"].get<std::string>();
    EXPECT_EQ(text.size(), std::string(name) == "json_schema" ? 8u : 6u) << text;
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST_F(ServiceTest, WhatCannotBeHeldToIsRefusedWithItsPlace) {
  if (!has_constraints()) return;
  const auto service = start();
  const auto refused = [&](const char* path, Json body) {
    const auto answer = post(*service, path, body);
    EXPECT_EQ(answer->status(), 400) << body;
    return answer->json()["error"];
  };
  const Json no = {{"properties", {{"a", {{"not", Json::object()}}}}}};
  Json error = refused("/v1/completions", {{"prompt", "a"}, {"json_schema", no}});
  EXPECT_EQ(error["param"], "json_schema");
  EXPECT_EQ(error["code"], "unsupported_parameter");
  EXPECT_EQ(error["message"], "json_schema#/properties/a/not: the keyword not is not supported");
  error = refused("/v1/completions", {{"prompt", "a"}, {"grammar", "root ::= \"a\""}});
  EXPECT_NE(error["message"].get<std::string>().find("GBNF"), std::string::npos);
  error = refused("/v1/completions", {{"prompt", "a"}, {"regex", "("}});
  EXPECT_EQ(error["param"], "regex");
  if (!has_template_engine()) return;
  Json body = question("a", 3);
  body["tools"] = Json::array({weather_tool(true)});
  body["tools"][0]["function"]["parameters"]["properties"]["days"]["not"] = Json::object();
  const auto calls = start({.template_text = kCallTemplate});
  const auto answer = post(*calls, "/v1/chat/completions", body);
  EXPECT_EQ(answer->json()["error"]["message"],
            "tools[0].function.parameters#/properties/days/not: the keyword not is not supported");
}

TEST_F(ServiceTest, NamesOfOneModelAreOne) {
  if (testing::without_engine()) return;
  const auto service = start({.model_name = "Moe.gguf", .aliases = {"lab/Fox"}});
  for (const char* name : {"Moe.gguf", "moe", "MOE:latest", "moe.gguf:latest", "models/moe.gguf",
                           "fox", "fox.gguf", ""}) {
    EXPECT_EQ(post(*service, "/api/show", {{"model", name}})->status(), 200) << name;
  }
  for (const char* name : {"mo", "moe.bin", "moe:8b", "gguf", "lab"}) {
    EXPECT_EQ(post(*service, "/api/show", {{"model", name}})->status(), 404) << name;
  }
  const auto any = start({.aliases = {"*"}});
  EXPECT_EQ(post(*any, "/api/show", {{"model", "gpt-4o"}})->status(), 200);
}

}  // namespace
}  // namespace moeflux::serve
