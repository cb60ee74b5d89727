// What Ollama's requests ask for, and what its clients are told.
#include <gtest/gtest.h>

#include "base/format.h"
#include "serve/answer_script_test_util.h"
#include "serve/ollama/answer.h"
#include "serve/ollama/request.h"
#include "serve/utc_time.h"

namespace moeflux::serve {
namespace {

using script::answer_of;
using script::stream_of;

OllamaRequest good(DecodedOllama decoded) {
  const auto* error = std::get_if<ApiError>(&decoded);
  EXPECT_EQ(error, nullptr) << (error == nullptr ? "" : error->message);
  return error == nullptr ? std::get<OllamaRequest>(std::move(decoded)) : OllamaRequest{};
}

OllamaRequest chat(const Json& body) { return good(decode_ollama_chat(body, {}, 4096)); }
OllamaRequest generate(const Json& body) { return good(decode_ollama_generate(body, {}, 4096)); }

TEST(DecodeOllama, ReadsAConversationWithCalls) {
  const OllamaRequest request = chat(Json::parse(R"({"messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where?", "images": []},
    {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [
      {"function": {"name": "look", "arguments": {"a": 1}}}, {"function": {"name": "go"}}]},
    {"role": "tool", "content": "gone", "tool_name": "go"},
    {"role": "tool", "content": "a tree", "tool_name": "look"}]})"));
  EXPECT_EQ(request.chat.conversation.messages, Json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [
      {"id": "call_0", "type": "function",
       "function": {"name": "look", "arguments": "{\"a\":1}"}},
      {"id": "call_1", "type": "function", "function": {"name": "go", "arguments": "{}"}}]},
    {"role": "tool", "content": "gone", "tool_call_id": "call_1", "name": "go"},
    {"role": "tool", "content": "a tree", "tool_call_id": "call_0", "name": "look"}])"));
  EXPECT_TRUE(request.chat.generation.stream);
}

TEST(DecodeOllama, ALastMessageOfTheAssistantIsContinued) {
  const OllamaRequest request = chat(Json::parse(
      R"({"messages": [{"role": "user", "content": "Say the days."},
                       {"role": "assistant", "content": "Monday, Tues"}]})"));
  EXPECT_TRUE(request.chat.conversation.continue_final_message);
  EXPECT_FALSE(request.chat.conversation.add_generation_prompt);
}

TEST(DecodeOllama, TakesItsOptions) {
  const OllamaRequest request = chat(Json::parse(R"({
    "messages": [{"role": "user", "content": "hi"}], "stream": false, "think": "low",
    "options": {"num_ctx": 2048, "num_predict": -2, "temperature": 0.5, "seed": 3, "stop": ["a"],
                "repeat_penalty": 1.2, "num_thread": 8}})"));
  EXPECT_EQ(request.chat.generation.tokens_max, -1);
  EXPECT_EQ(request.chat.generation.sampler.temperature, 0.5f);
  EXPECT_EQ(request.chat.generation.sampler.seed, 3u);
  EXPECT_EQ(request.chat.generation.stop, (std::vector<std::string>{"a"}));
  EXPECT_FALSE(request.chat.generation.stream);
  EXPECT_EQ(request.chat.conversation.variables["enable_thinking"], true);
  EXPECT_EQ(request.chat.conversation.variables["reasoning_effort"], "low");
}

TEST(DecodeOllama, APromptIsAQuestionOrATextAsItIs) {
  const OllamaRequest asked = generate({{"prompt", "hi"}, {"system", "Be brief."}});
  EXPECT_EQ(asked.chat.conversation.messages.dump(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])");
  const OllamaRequest raw = generate({{"prompt", "hi"}, {"raw", true}});
  EXPECT_TRUE(raw.is_raw);
  EXPECT_EQ(raw.raw_prompt, "hi");
  EXPECT_TRUE(generate(Json::object()).is_empty);
  EXPECT_TRUE(chat({{"messages", Json::array()}}).is_empty);
}

TEST(DecodeOllama, NamesTheFieldThatCannotBe) {
  const std::vector<std::tuple<const char*, Json, const char*>> bad = {
      {"messages", 3, "messages"},
      {"messages", Json::array({3}), "messages[0]"},
      {"messages", Json::parse(R"([{"role": "user", "images": ["x"]}])"), "messages[0].images"},
      {"messages", Json::parse(R"([{"role": "assistant", "tool_calls": [{}]}])"),
       "messages[0].tool_calls[0].function"},
      {"options", {{"num_ctx", 8192}}, "options.num_ctx"},
      {"options", {{"num_predict", "all"}}, "options.num_predict"},
      {"options", {{"temperature", "hot"}}, "options.temperature"},
      {"options", 3, "options"},
      {"format", "xml", "format"},
      {"think", 3, "think"},
      {"stream", "yes", "stream"}};
  for (const auto& [name, value, param] : bad) {
    Json body = Json::parse(R"({"messages": [{"role": "user", "content": "hi"}]})");
    body[name] = value;
    const auto decoded = decode_ollama_chat(body, {}, 4096);
    const auto* error = std::get_if<ApiError>(&decoded);
    ASSERT_NE(error, nullptr) << body.dump();
    EXPECT_EQ(error->param, param);
    EXPECT_NE(error->message.find(param), std::string::npos) << error->message;
  }
  for (const char* name : {"suffix", "template"}) {
    const auto decoded = decode_ollama_generate({{"prompt", "a"}, {name, "b"}}, {}, 4096);
    const auto* error = std::get_if<ApiError>(&decoded);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->param, name);
  }
}

OllamaEncoder encoder(bool is_chat) {
  return OllamaEncoder({.model = "m", .is_chat = is_chat, .clock = [] { return "now"; }});
}

constexpr const char* kNumbers =
    R"("total_duration":750000000,"load_duration":0,"prompt_eval_count":30,)"
    R"("prompt_eval_duration":500000000,"eval_count":12,"eval_duration":250000000})";

TEST(OllamaEncoder, SaysAnAnswerInLines) {
  const auto deltas = script::thinking_and_calling();
  OllamaEncoder one = encoder(true);
  const std::string begin = R"({"model":"m","created_at":"now","message":{"role":"assistant",)";
  const std::string go_on = "},\"done\":false}\n";
  EXPECT_EQ(stream_of(one, deltas, answer_of(deltas)),
            begin + R"("content":"","thinking":"Let me ")" + go_on + begin +
                R"("content":"","thinking":"look.")" + go_on + begin + R"("content":"I look")" +
                go_on + begin + R"("content":" it up.")" + go_on + begin +
                R"("content":"","tool_calls":[{"function":{"name":"look",)" +
                R"("arguments":{"place":"hill"}}}])" + go_on + begin +
                R"("content":""},"done":true,"done_reason":"stop",)" + kNumbers + "\n");
  EXPECT_EQ(one.whole().dump(),
            begin + R"("content":"I look it up.","thinking":"Let me look.","tool_calls":)" +
                R"([{"function":{"name":"look","arguments":{"place":"hill"}}}]},"done":true,)" +
                R"("done_reason":"stop",)" + kNumbers);
}

TEST(OllamaEncoder, SaysACutTextOfGenerate) {
  const std::vector<AnswerDelta> deltas = {script::content("Once")};
  OllamaEncoder one = encoder(false);
  EXPECT_EQ(stream_of(one, deltas, answer_of(deltas, FinishReason::kTokensMax)),
            std::string(R"({"model":"m","created_at":"now","response":"Once","done":false})") +
                "\n" + R"({"model":"m","created_at":"now","response":"","done":true,)" +
                R"("done_reason":"length",)" + kNumbers + "\n");
  EXPECT_EQ(one.fail({.message = "the drive"}), "{\"error\":\"the drive\"}\n");
  EXPECT_EQ(one.loaded()["done_reason"], "load");
}

// 100,000 calls that each result looks through are ten billion comparisons.
TEST(OllamaRequest, ManyCallsAndResultsFindEachOther) {
  constexpr int kCalls = 100'000;
  Json calls = Json::array();
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back({{"function", {{"name", formatted("f{}", i)}, {"arguments", Json::object()}}}});
  }
  Json messages = Json::array({{{"role", "assistant"}, {"tool_calls", std::move(calls)}}});
  for (int i = kCalls; i-- > 0;) {
    messages.push_back({{"role", "tool"}, {"tool_name", formatted("f{}", i)}, {"content", "done"}});
  }
  const auto decoded =
      decode_ollama_chat({{"model", "m"}, {"messages", std::move(messages)}}, {}, 4096);
  const auto* request = std::get_if<OllamaRequest>(&decoded);
  ASSERT_NE(request, nullptr);
  const Json& read = request->chat.conversation.messages;
  ASSERT_EQ(read.size(), 1u + kCalls);
  for (size_t i = 0; i < kCalls; i += 999) {
    EXPECT_EQ(read[1 + i]["tool_call_id"], read[0]["tool_calls"][kCalls - 1 - i]["id"]);
  }
}

TEST(UtcText, IsRfc3339) {
  const auto time =
      std::chrono::system_clock::time_point(std::chrono::microseconds(1784466785000123));
  EXPECT_EQ(utc_text(time), "2026-07-19T13:13:05.000123Z");
}

}  // namespace
}  // namespace moeflux::serve
