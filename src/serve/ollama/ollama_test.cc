// Ollama's requests, and the answers to its clients.
#include <gtest/gtest.h>

#include "base/format.h"
#include "serve/answer/answer_script_test_util.h"
#include "serve/ollama/answer.h"
#include "serve/ollama/model_card.h"
#include "serve/ollama/request.h"
#include "serve/wire/utc_time.h"

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
    {"role": "tool", "content": "a tree", "tool_call_id": "call_0", "name": "look"},
    {"role": "tool", "content": "gone", "tool_call_id": "call_1", "name": "go"}])"));
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

// LiteLLM and Open WebUI send OpenAI's frequency_penalty under this name.
TEST(DecodeOllama, ARepeatPenaltyOfNothingIsNone) {
  RequestDefaults defaults;
  defaults.sampler.repeat_penalty = 1.1f;
  const OllamaRequest request = good(decode_ollama_generate(
      {{"prompt", "a"}, {"options", {{"repeat_penalty", 0}}}}, defaults, 4096));
  EXPECT_EQ(request.chat.generation.sampler.repeat_penalty, 1.1f);
}

TEST(DecodeOllama, APromptIsAQuestionOrATextAsItIs) {
  const OllamaRequest asked = generate({{"prompt", "hi"}, {"system", "Be brief."}});
  EXPECT_EQ(asked.chat.conversation.messages.dump(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])");
  const OllamaRequest raw = generate({{"prompt", "hi"}, {"raw", true}});
  EXPECT_TRUE(raw.is_raw);
  EXPECT_EQ(raw.prompt, "hi");
  const OllamaRequest gap = generate({{"prompt", ""}, {"suffix", "}"}});
  EXPECT_FALSE(gap.is_empty);
  EXPECT_EQ(gap.suffix, "}");
  EXPECT_EQ(generate({{"prompt", "hi"}, {"context", {3, 5}}}).context,
            (std::vector<TokenId>{3, 5}));
  EXPECT_TRUE(generate(Json::object()).is_empty);
  EXPECT_TRUE(chat({{"messages", Json::array()}}).is_empty);
}

TEST(DecodeOllama, AModelIsKeptForAnyDuration) {
  const Json times = Json::array(
      {0, -1, 1.5, "0", "5m", "-1s", "1h30m", "+1.5h", ".5s", "1.s", "100ms", "3\u00b5s", "9ns"});
  for (const Json& time : times) generate({{"prompt", "a"}, {"keep_alive", time}});
}

TEST(DecodeOllama, NamesTheFieldThatCannotBe) {
  const std::vector<std::tuple<const char*, Json, const char*>> bad = {
      {"messages", 3, "messages"},
      {"messages", Json::array({3}), "messages[0]"},
      {"messages", Json::parse(R"([{"role": "user", "images": ["x"]}])"), "messages[0].images"},
      {"messages", Json::parse(R"([{"role": "assistant", "tool_calls": [{}]}])"),
       "messages[0].tool_calls[0].function"},
      {"messages", Json::parse(R"([{"role": "judge", "content": "Guilty."}])"), "messages[0].role"},
      {"messages", Json::parse(R"([{"content": "Who speaks?"}])"), "messages[0].role"},
      {"options", {{"num_ctx", "large"}}, "options.num_ctx"},
      {"options", {{"stop", 3}}, "options.stop"},
      {"options", {{"mirostat", 3}}, "options.mirostat"},
      {"options", {{"dry_sequence_breakers", {""}}}, "options.dry_sequence_breakers"},
      {"tools", {{"name", "look"}}, "tools"},
      {"tools", Json::array({{{"type", "function"}}}), "tools[0].function"},
      {"tools", Json::array({{{"function", {{"name", 3}}}}}), "tools[0].function.name"},
      {"tool_choice", "required", "tool_choice"},
      {"tool_choice", {{"type", "function"}, {"function", {{"name", "look"}}}}, "tool_choice"},
      {"tool_choice", 3, "tool_choice"},
      {"logprobs", 1, "logprobs"},
      {"top_logprobs", 21, "top_logprobs"},
      {"keep_alive", true, "keep_alive"},
      {"keep_alive", "x", "keep_alive"},
      {"keep_alive", "", "keep_alive"},
      {"keep_alive", "-", "keep_alive"},
      {"keep_alive", "5", "keep_alive"},
      {"keep_alive", ".m", "keep_alive"},
      {"keep_alive", "5 m", "keep_alive"},
      {"keep_alive", "1h5", "keep_alive"},
      {"keep_alive", "5d", "keep_alive"},
      {"truncate", "yes", "truncate"},
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
  const std::vector<std::pair<Json, const char*>> bad_prompts = {
      {{{"images", Json::array({"aGk="})}}, "images"},
      {{{"context", Json::array({1, -1})}}, "context[1]"},
      {{{"context", "a text"}}, "context"},
      {{{"suffix", 3}}, "suffix"},
      {{{"raw", true}, {"system", "Be brief."}}, "system"},
      {{{"raw", true}, {"template", "{{ .Prompt }}"}}, "template"},
      {{{"raw", true}, {"context", Json::array({1})}}, "context"}};
  for (const auto& [fields, param] : bad_prompts) {
    Json body = {{"prompt", "a"}};
    body.update(fields);
    const auto decoded = decode_ollama_generate(body, {}, 4096);
    const auto* error = std::get_if<ApiError>(&decoded);
    ASSERT_NE(error, nullptr) << body.dump();
    EXPECT_EQ(error->param, param);
    EXPECT_NE(error->message.find(param), std::string::npos) << error->message;
  }
}

// Messages as who says them, what they call, or for results the call that they answer.
std::string calls_of(const char* messages) {
  const OllamaRequest request = chat({{"messages", Json::parse(messages)}});
  std::string read;
  for (const Json& message : request.chat.conversation.messages) {
    if (!read.empty()) read += ' ';
    if (message.contains("tool_call_id")) {
      read += message["tool_call_id"].get<std::string>() + message["content"].get<std::string>();
    }
    for (const Json& call : message.value("tool_calls", Json::array())) {
      read += formatted("<{}>", call["id"].get<std::string>());
    }
    if (!message.contains("tool_call_id") && !message.contains("tool_calls")) {
      read += message["role"].get<std::string>();
    }
  }
  return read;
}

TEST(DecodeOllama, AResultIsOfTheCallThatItsIdNames) {
  EXPECT_EQ(calls_of(R"([
    {"role": "assistant", "tool_calls": [
      {"id": "A", "function": {"index": 0, "name": "look", "arguments": {}}},
      {"id": "B", "function": {"index": 1, "name": "look", "arguments": {}}}]},
    {"role": "tool", "tool_name": "look", "tool_call_id": "B", "content": " rain"},
    {"role": "tool", "tool_name": "look", "tool_call_id": "A", "content": " sun"}])"),
            "<A><B> A sun B rain");
  // Without an id the first of the name that has none yet; an id that nobody gave says nothing.
  EXPECT_EQ(calls_of(R"([
    {"role": "assistant", "tool_calls": [
      {"id": "A", "function": {"name": "look"}}, {"id": "B", "function": {"name": "go"}},
      {"id": "C", "function": {"name": "look"}}]},
    {"role": "tool", "tool_name": "go", "content": "1"},
    {"role": "tool", "tool_call_id": "C", "content": "2"},
    {"role": "tool", "tool_name": "look", "content": "3"}])"),
            "<A><B><C> A3 B1 C2");
  EXPECT_EQ(calls_of(R"([
    {"role": "assistant", "tool_calls": [{"function": {"name": "a"}}, {"function": {"name": "b"}}]},
    {"role": "tool", "tool_call_id": "x", "tool_name": "b", "content": "1"},
    {"role": "tool", "content": "2"}])"),
            "<call_0><call_1> call_02 call_11");
  // More results than calls, and results of no call.
  EXPECT_EQ(calls_of(R"([
    {"role": "assistant", "tool_calls": [{"id": "A", "function": {"name": "a"}}]},
    {"role": "tool", "content": "3"}, {"role": "tool", "tool_call_id": "B"},
    {"role": "tool", "tool_call_id": "A", "content": "1"},
    {"role": "tool", "tool_call_id": "A", "content": "2"}])"),
            "<A> A3 A1 A2 B");
}

TEST(DecodeOllama, CallsOfOneIdAreToldApart) {
  EXPECT_EQ(calls_of(R"([
    {"role": "assistant", "tool_calls": [
      {"id": "A", "function": {"name": "a"}}, {"id": "A", "function": {"name": "b"}}]},
    {"role": "tool", "tool_call_id": "A", "content": "1"},
    {"role": "tool", "tool_call_id": "A", "content": "2"},
    {"role": "assistant", "tool_calls": [{"id": "A", "function": {"name": "a"}}]},
    {"role": "tool", "tool_call_id": "A", "content": "3"}])"),
            "<A><call_0> A1 call_02 <call_1> call_13");
}

TEST(DecodeOllama, AResultIsNotOfACallThatNobodyAnsweredBefore) {
  EXPECT_EQ(calls_of(R"([
    {"role": "assistant", "tool_calls": [{"id": "A", "function": {"name": "look"}}]},
    {"role": "user", "content": "Never mind."},
    {"role": "assistant", "tool_calls": [{"id": "B", "function": {"name": "look"}}]},
    {"role": "tool", "tool_name": "look"}])"),
            "<A> user <B> B");
  // Calls at once that a client tells in a message each.
  EXPECT_EQ(calls_of(R"([
    {"role": "assistant", "tool_calls": [{"id": "A", "function": {"name": "look"}}]},
    {"role": "assistant", "tool_calls": [{"id": "B", "function": {"name": "look"}}]},
    {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])"),
            "<A> <B> A1 B2");
}

TEST(DecodeOllama, AThoughtIsOfTheAnswerBehindIt) {
  const OllamaRequest request = chat(Json::parse(R"({"messages": [
    {"role": "User", "content": "Where?"}, {"role": "thinking", "content": "Hm."},
    {"role": "ASSISTANT", "content": "There."}, {"role": "thinking", "content": "Well."},
    {"role": "user", "content": "Why?"}]})"));
  EXPECT_EQ(request.chat.conversation.messages, Json::parse(R"([
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": "There.", "reasoning_content": "Hm."},
    {"role": "user", "content": "Why?"}])"));
}

TEST(DecodeOllama, EarlierImagesBecomeALine) {
  const std::string line = "[image left out: this model reads text alone]";
  const OllamaRequest request = chat(Json::parse(R"({"messages": [
    {"role": "user", "content": "What is it?", "images": ["aGk=", "aGk="]},
    {"role": "assistant", "content": "A fox.", "images": []},
    {"role": "user", "content": "Look again."},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look"}}]},
    {"role": "tool", "tool_name": "look", "content": "", "images": ["aGk="]}]})"));
  const Json& messages = request.chat.conversation.messages;
  EXPECT_EQ(messages[0]["content"], "What is it?\n" + line + "\n" + line);
  EXPECT_EQ(messages[1]["content"], "A fox.");
  EXPECT_EQ(messages[4]["content"], line);
}

TEST(DecodeOllama, MoreContextThanThereIsIsNoError) {
  const auto asked = [](const Json& num_ctx) {
    return generate({{"prompt", "a"}, {"options", {{"num_ctx", num_ctx}}}}).context_asked;
  };
  EXPECT_EQ(asked(32768), 32768);
  EXPECT_EQ(asked(int64_t{1} << 40), int64_t{1} << 40);
  for (const int64_t size : {4096, 2048, 0, -1}) EXPECT_EQ(asked(size), std::nullopt) << size;
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
  const std::string call = formatted(
      R"({{"id":"{}","function":{{"index":0,"name":"look","arguments":{{"place":"hill"}}}}}})",
      answer_of(deltas).calls.at(0).id);
  EXPECT_EQ(stream_of(one, deltas, answer_of(deltas)),
            begin + R"("content":"","thinking":"Let me ")" + go_on + begin +
                R"("content":"","thinking":"look.")" + go_on + begin + R"("content":"I look")" +
                go_on + begin + R"("content":" it up.")" + go_on + begin +
                R"("content":"","tool_calls":[)" + call + "]" + go_on + begin +
                R"("content":""},"done":true,"done_reason":"stop",)" + kNumbers + "\n");
  EXPECT_EQ(one.whole().dump(),
            begin + R"("content":"I look it up.","thinking":"Let me look.","tool_calls":)" + "[" +
                call + R"(]},"done":true,"done_reason":"stop",)" + kNumbers);
}

// LiteLLM numbers the calls of each line from 0 on and joins what has one number.
TEST(OllamaEncoder, CallsAtOnceComeInOneLineWithIdsAndIndexes) {
  OllamaEncoder one = encoder(true);
  std::string stream;
  for (int i = 0; i < 3; ++i) {
    const std::vector<AnswerDelta> call = {script::call_begin(i, formatted("c{}", i), "look"),
                                           script::call_arguments(i, "{}"), script::call_end(i)};
    for (const AnswerDelta& delta : call) stream += one.delta(delta);
    if (i == 1) stream += one.delta(script::content("And:"));
  }
  stream += one.end({});
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find('\n', begin);
    const Json message = Json::parse(stream.substr(begin, end - begin))["message"];
    std::string line = message["content"].get<std::string>();
    for (const Json& call : message.value("tool_calls", Json::array())) {
      line += formatted("{}={} ", call["id"].get<std::string>(), call["function"]["index"].dump());
    }
    lines.push_back(line);
    begin = end + 1;
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"c0=0 c1=1 ", "And:", "c2=2 ", ""}));
  EXPECT_EQ(one.whole()["message"]["tool_calls"].size(), 3u);
}

TEST(OllamaEncoder, TellsTheTokensThatAClientGoesOnFrom) {
  OllamaEncoder one({.model = "m",
                     .is_chat = false,
                     .clock = [] { return "now"; },
                     .prompt = std::vector<TokenId>{7, 8}});
  AnswerPart answer;
  answer.tokens = {9, 2};
  EXPECT_EQ(Json::parse(one.end(answer))["context"], Json::array({7, 8, 9, 2}));
  EXPECT_EQ(one.whole()["context"], Json::array({7, 8, 9, 2}));
}

TEST(OllamaEncoder, SaysACutTextOfGenerate) {
  const std::vector<AnswerDelta> deltas = {script::content("Once")};
  OllamaEncoder one = encoder(false);
  EXPECT_EQ(stream_of(one, deltas, answer_of(deltas, FinishReason::kTokensMax)),
            std::string(R"({"model":"m","created_at":"now","response":"Once","done":false})") +
                "\n" + R"({"model":"m","created_at":"now","response":"","done":true,)" +
                R"("done_reason":"length",)" + kNumbers + "\n");
  EXPECT_EQ(one.fail({.message = "the drive"}), "{\"error\":\"the drive\"}\n");
  EXPECT_EQ(one.moved("load")["done_reason"], "load");
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
    EXPECT_EQ(read[1 + i]["tool_call_id"], read[0]["tool_calls"][i]["id"]);
    EXPECT_EQ(read[1 + i]["name"], formatted("f{}", i));
  }
}

TEST(ModelCard, WritesNumbersAsOllamaDoes) {
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(12'300), "12K");
  EXPECT_EQ(short_number(20'902'912), "20.90M");
  EXPECT_EQ(short_number(7'000'000'000), "7B");
  EXPECT_EQ(short_number(30'532'122'624), "30.5B");
}

TEST(ModelCard, AModelfileRepeatsTheParameters) {
  EXPECT_EQ(modelfile("m", "top_k   40\nmin_p   0.05", "{{ m }}"),
            "FROM m\nPARAMETER top_k   40\nPARAMETER min_p   0.05\nTEMPLATE \"\"\"{{ m }}\"\"\"\n");
  EXPECT_EQ(modelfile("m", "", ""), "FROM m\n");
}

TEST(UtcText, IsRfc3339) {
  const auto time =
      std::chrono::system_clock::time_point(std::chrono::microseconds(1784466785000123));
  EXPECT_EQ(utc_text(time), "2026-07-19T13:13:05.000123Z");
}

}  // namespace
}  // namespace moeflux::serve
