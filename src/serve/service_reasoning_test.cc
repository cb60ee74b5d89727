// Constrained answers reason first only where the model's files show that it reasons.
#include "constraint/constraint.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

// The model's own template knows no reasoning; this one does.
constexpr const char* kReasoningTemplate =
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

Json schema() {
  return {{"type", "object"},
          {"properties", {{"city", {{"enum", Json::array({"Paris", "Oslo"})}}}}},
          {"required", Json::array({"city"})},
          {"additionalProperties", false}};
}

// The same in each interface: an answer of this schema, by a model that likes to reason.
std::vector<std::pair<std::string, Json>> requests() {
  const Json base = {
      {"messages", Json::array({{{"role", "user"}, {"content", "The capital of France?"}}})},
      {"temperature", 0},
      {"max_tokens", 40},
      {"logit_bias", Json::array({Json::array({"<think>", 100})})}};
  const Json tool = {{"name", "f"}, {"parameters", schema()}};
  Json chat = base;
  chat["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", schema()}}}};
  Json call = base;
  call["tools"] = Json::array({{{"type", "function"}, {"function", tool}}});
  call["tool_choice"] = "required";
  Json messages = base;
  messages["output_format"] = {{"type", "json_schema"}, {"schema", schema()}};
  Json response = base;
  response.erase("messages");
  response.erase("max_tokens");
  response["max_output_tokens"] = 40;
  response["input"] = "The capital of France?";
  response["text"]["format"] = {{"type", "json_schema"}, {"name", "n"}, {"schema", schema()}};
  Json ollama = {{"messages", base["messages"]}, {"format", schema()}, {"options", base}};
  ollama["options"].erase("messages");
  ollama["options"].erase("max_tokens");
  ollama["options"]["num_predict"] = 40;
  ollama["stream"] = false;
  return {{"/v1/chat/completions", chat},
          {"/v1/chat/completions", call},
          {"/v1/messages", messages},
          {"/v1/responses", response},
          {"/api/chat", ollama}};
}

bool tells_reasoning(const std::string& answer) {
  for (const char* name : {"\"reasoning_content\":\"", "\"type\":\"thinking\"",
                           "\"type\":\"reasoning\"", "\"thinking\":\""}) {
    if (answer.find(name) != std::string::npos) return true;
  }
  return false;
}

TEST_F(ServiceTest, HeldAnswersReasonOnlyWhereTheTemplateShowsReasoning) {
  if (testing::without_engine() || !has_constraints()) return;
  for (const bool reasons : {false, true}) {
    const auto service = start({.template_text = reasons ? kReasoningTemplate : kTemplate});
    for (const auto& [path, body] : requests()) {
      const auto answer = post(*service, path, body);
      EXPECT_EQ(answer->status(), 200) << path << answer->wait();
      EXPECT_EQ(tells_reasoning(answer->wait()), reasons) << path << answer->wait();
    }
  }
}

// The client's own opener is gone on with, whatever the template knows.
TEST_F(ServiceTest, ReasoningThatThePromptOpensIsClosedFirst) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto service =
      start({.template_text =
                 "{{ messages[0].content }}\n{% if add_generation_prompt %}<think>\n{% endif %}"});
  Json body = question("Why?", 60);
  body["reasoning_budget"] = 8;
  body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", schema()}}}};
  const Json message =
      post(*service, "/v1/chat/completions", body)->json()["choices"][0]["message"];
  EXPECT_NE(message.value("reasoning_content", ""), "") << message;
}

}  // namespace
}  // namespace moeflux::serve
