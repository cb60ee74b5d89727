// Errors use the client's names, where the client has one.
#include "serve/service_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux::serve {
namespace {

using WordsTest = ServiceTest;

Json messages_of(const char* text) { return {{"messages", Json::parse(text)}, {"max_tokens", 1}}; }

TEST_F(WordsTest, WhatATemplateWouldMissIsNamedInTheRequest) {
  if (testing::without_engine()) return;
  const auto service = start();
  const std::pair<const char*, const char*> rows[] = {
      {R"([{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f"}}]}])",
       "messages[0].tool_calls[0]"},
      {R"([{"role": "assistant", "tool_calls": [{"type": "function"}]}])",
       "messages[0].tool_calls[0]"},
      {R"([{"role": "assistant", "tool_calls": ["f"]}])", "messages[0].tool_calls[0]"},
      {R"([{"role": "assistant", "tool_calls": "f"}])", "messages[0].tool_calls"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])",
       "messages[0].tool_calls[0].function"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role": "assistant", "function_call": {"name": "f"}}])",
       "messages[0].function_call.arguments"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 5}]}])",
       "messages[0].content[0].text"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text"},
      {R"([{"role": "user", "content": [{"type": "input_text", "text": null}]}])",
       "messages[0].content[0].text"}};
  for (const auto& [messages, param] : rows) {
    const auto answer = post(*service, "/v1/chat/completions", messages_of(messages));
    EXPECT_EQ(answer->status(), 400) << messages;
    EXPECT_EQ(answer->json()["error"]["param"], param) << answer->wait();
  }
}

TEST_F(WordsTest, AGivenTemplateThatDoesNotCompileIsAnErrorOfTheStart) {
  if (testing::without_engine()) return;
  const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
  auto model = open_model(fable, {.device = {.threads = 1}, .engine = {.context_length = 64}},
                          std::move(load_model_text(fable)).value());
  ASSERT_TRUE(model.ok()) << model.error().message();
  testing::expect_error(Service::start(*model, {.template_text = "one\n{% for m in %}"}),
                        ErrorCode::kInvalidArgument, {"the chat template that was given, line 2"});
}

TEST_F(WordsTest, AnEndThatCannotBeGoneOnWithIsCalledAsTheClientHasIt) {
  if (testing::without_engine()) return;
  const auto service = start({.template_text = "{% for m in messages %}{% if m.content %}"
                                               "{{ m.content }}{% endif %}{% endfor %}"});
  Json body = messages_of(R"([{"role": "user", "content": "x"},
                              {"role": "assistant", "content": "", "reasoning_content": "y"}])");
  const auto param = [&] {
    const auto answer = post(*service, "/v1/chat/completions", body);
    EXPECT_EQ(answer->status(), 400) << answer->wait();
    return answer->json()["error"]["param"];
  };
  EXPECT_EQ(param(), "messages[1]");
  body["continue_final_message"] = true;
  EXPECT_EQ(param(), "continue_final_message");
}

TEST_F(WordsTest, ASchemaThatIsNoJsonIsShownAsItCame) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("x", 1);
  body["guided_json"] = "not json";
  const Json error = post(*service, "/v1/chat/completions", body)->json()["error"];
  EXPECT_EQ(error["param"], "guided_json");
  EXPECT_EQ(error["message"], "guided_json is \"not json\", expected a JSON schema or its text");
  body.erase("guided_json");
  body["structured_outputs"] = {{"json", "{"}};
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->json()["error"]["param"],
            "structured_outputs.json");
}

TEST_F(WordsTest, ResultsStandInTheOrderOfTheirCalls) {
  if (testing::without_engine()) return;
  const auto service = start();
  const auto prompt = [&](const char* first, const char* second) {
    Json body = messages_of(R"([{"role": "assistant", "content": "", "tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "function": {"name": "f", "arguments": "{}"}}]}])");
    for (const char* id : {first, second}) {
      body["messages"].push_back(
          {{"role", "tool"}, {"tool_call_id", id}, {"content", std::string("of ") + id}});
    }
    body["messages"].push_back({{"role", "user"}, {"content", "And?"}});
    return post(*service, "/v1/apply-template", body)->json()["prompt"].get<std::string>();
  };
  EXPECT_LT(prompt("b", "a").find("of a"), prompt("b", "a").find("of b")) << prompt("b", "a");
  EXPECT_EQ(prompt("b", "a"), prompt("a", "b"));
  EXPECT_LT(prompt("c", "b").find("of b"), prompt("c", "b").find("of c"));  // nobody's: behind
}

TEST_F(WordsTest, ASmallerNumCtxIsTheLimitOfItsRequest) {
  if (testing::without_engine()) return;
  const auto service = start();
  const Json messages = Json::array({{{"role", "user"}, {"content", "Once upon a time"}}});
  Json body = {{"messages", messages}, {"stream", false}, {"options", {{"seed", 1}}}};
  body["options"]["num_predict"] = 1;
  const int64_t prompt =
      post(*service, "/api/chat", body)->json()["prompt_eval_count"].get<int64_t>();
  body["options"]["num_predict"] = 9;
  body["options"]["num_ctx"] = prompt + 4;
  body["options"]["ignore_eos"] = true;
  const Json answer = post(*service, "/api/chat", body)->json();
  EXPECT_EQ(answer["eval_count"], 4) << answer;
  EXPECT_EQ(answer["done_reason"], "length");
  body["options"]["num_ctx"] = prompt;
  const auto refused = post(*service, "/api/chat", body);
  EXPECT_EQ(refused->status(), 400);
  EXPECT_NE(refused->wait().find("options.num_ctx"), std::string::npos) << refused->wait();
  const Json raw = {{"prompt", "Once"},
                    {"raw", true},
                    {"stream", false},
                    {"options", {{"num_ctx", 6}, {"ignore_eos", true}}}};
  const Json text = post(*service, "/api/generate", raw)->json();
  EXPECT_EQ(text["prompt_eval_count"].get<int>() + text["eval_count"].get<int>(), 6) << text;
}

TEST_F(WordsTest, ASeedBelowZeroIsOneAsWell) {
  const auto service = start();
  Json body = {{"prompt", "Once"}, {"max_tokens", 8}, {"seed", -7}};
  const Json first = post(*service, "/v1/completions", body)->json();
  EXPECT_EQ(first["moeflux"]["seed"], -7);
  EXPECT_EQ(post(*service, "/v1/completions", body)->json()["choices"], first["choices"]);
  body["seed"] = -1;  // drawn
  EXPECT_GE(post(*service, "/v1/completions", body)->json()["moeflux"]["seed"], 0);
}

TEST_F(WordsTest, ContentToTokenizeMayBeAListOfTextsAndIds) {
  const auto service = start();
  const auto ids = [&](const Json& content) {
    return post(*service, "/v1/tokenize", {{"content", content}})->json()["tokens"];
  };
  const Json once = ids("Once");
  Json expected = once;
  expected.push_back(5);
  for (const Json& id : once) expected.push_back(id);
  EXPECT_EQ(ids({"Once", 5, "Once"}), expected);
  EXPECT_EQ(ids(Json::array()), Json::array());
  const auto param = [&](const Json& content) {
    const auto answer = post(*service, "/v1/tokenize", {{"content", content}});
    EXPECT_EQ(answer->status(), 400);
    return answer->json()["error"]["param"];
  };
  EXPECT_EQ(param(Json::array({"a", -1})), "content[1]");
  EXPECT_EQ(param(Json::array({"a", Json::array()})), "content[1]");
  EXPECT_EQ(param(5), "content");
}

}  // namespace
}  // namespace moeflux::serve
