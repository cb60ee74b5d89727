// Streams and responses as OpenAI's clients get them.
#include "serve/responses/answer.h"

#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <utility>

#include "serve/answer/answer_script_test_util.h"
#include "serve/responses/request.h"

namespace moeflux::serve {
namespace {

using script::answer_of;
using script::content;
using script::stream_of;

ResponseAnswerOptions options() {
  return {.identity = {.id = "resp_1", .created = 5, .model = "m"},
          .echo = {{"instructions", "Be brief."}}};
}

/// The events' data; each event has its type as name, too.
std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  std::istringstream lines(stream);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (!line.starts_with("data: ")) continue;
    events.push_back(Json::parse(line.substr(6)));
    EXPECT_EQ(events.back()["type"], name);
  }
  return events;
}

// Without what all have in common, and what frames of whole responses repeat.
constexpr const char* kEvents = R"([
  ["response.created"],
  ["response.in_progress"],
  ["response.output_item.added", {"output_index": 0, "item": {"id": "rs_1_0",
    "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}}],
  ["response.content_part.added", {"item_id": "rs_1_0", "output_index": 0, "content_index": 0,
    "part": {"type": "reasoning_text", "text": ""}}],
  ["response.reasoning_text.delta", {"item_id": "rs_1_0", "output_index": 0, "content_index": 0,
    "delta": "Let me "}],
  ["response.reasoning_text.delta", {"item_id": "rs_1_0", "output_index": 0, "content_index": 0,
    "delta": "look."}],
  ["response.reasoning_text.done", {"item_id": "rs_1_0", "output_index": 0, "content_index": 0,
    "text": "Let me look."}],
  ["response.content_part.done", {"item_id": "rs_1_0", "output_index": 0, "content_index": 0,
    "part": {"type": "reasoning_text", "text": "Let me look."}}],
  ["response.output_item.done", {"output_index": 0, "item": {"id": "rs_1_0",
    "type": "reasoning", "summary": [], "status": "completed",
    "content": [{"type": "reasoning_text", "text": "Let me look."}]}}],
  ["response.output_item.added", {"output_index": 1, "item": {"id": "msg_1_1",
    "type": "message", "role": "assistant", "content": [], "status": "in_progress"}}],
  ["response.content_part.added", {"item_id": "msg_1_1", "output_index": 1, "content_index": 0,
    "part": {"type": "output_text", "text": "", "annotations": [], "logprobs": []}}],
  ["response.output_text.delta", {"item_id": "msg_1_1", "output_index": 1, "content_index": 0,
    "delta": "I look", "logprobs": []}],
  ["response.output_text.delta", {"item_id": "msg_1_1", "output_index": 1, "content_index": 0,
    "delta": " it up.", "logprobs": []}],
  ["response.output_text.done", {"item_id": "msg_1_1", "output_index": 1, "content_index": 0,
    "text": "I look it up.", "logprobs": []}],
  ["response.content_part.done", {"item_id": "msg_1_1", "output_index": 1, "content_index": 0,
    "part": {"type": "output_text", "text": "I look it up.", "annotations": [],
             "logprobs": []}}],
  ["response.output_item.done", {"output_index": 1, "item": {"id": "msg_1_1",
    "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "I look it up.", "annotations": [],
                 "logprobs": []}]}}],
  ["response.output_item.added", {"output_index": 2, "item": {"id": "fc_1_2",
    "type": "function_call", "call_id": "call_1", "name": "look", "arguments": "",
    "status": "in_progress"}}],
  ["response.function_call_arguments.delta", {"item_id": "fc_1_2", "output_index": 2,
    "delta": "{\"place\":"}],
  ["response.function_call_arguments.delta", {"item_id": "fc_1_2", "output_index": 2,
    "delta": "\"hill\"}"}],
  ["response.function_call_arguments.done", {"item_id": "fc_1_2", "output_index": 2,
    "name": "look", "arguments": "{\"place\":\"hill\"}"}],
  ["response.output_item.done", {"output_index": 2, "item": {"id": "fc_1_2",
    "type": "function_call", "call_id": "call_1", "name": "look",
    "arguments": "{\"place\":\"hill\"}", "status": "completed"}}],
  ["response.completed"]
])";

TEST(ResponseEncoder, SaysAnAnswerInItems) {
  const auto deltas = script::thinking_and_calling();
  ResponseEncoder one(options());
  const std::vector<Json> events = events_of(stream_of(one, deltas, answer_of(deltas)));
  const Json expected = Json::parse(kEvents);
  ASSERT_EQ(events.size(), expected.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    EXPECT_EQ(events[i]["type"], expected[i][0]);
    // Keys in any order.
    const Json fields = expected[i].size() > 1 ? expected[i][1] : Json::object();
    for (const auto& [key, value] : fields.items()) {
      EXPECT_EQ(SortedJson::parse(events[i][key].dump()), SortedJson::parse(value.dump()));
    }
  }
  const Json& created = events.front()["response"];
  EXPECT_EQ(created["id"], "resp_1");
  EXPECT_EQ(created["status"], "in_progress");
  EXPECT_EQ(created["instructions"], "Be brief.");
  EXPECT_EQ(events.back()["response"], one.whole());
}

TEST(ResponseEncoder, TheWholeHasTheItemsOfTheStream) {
  const auto deltas = script::thinking_and_calling();
  ResponseEncoder one(options());
  Json done = Json::array();
  for (const Json& event : events_of(stream_of(one, deltas, answer_of(deltas)))) {
    if (event["type"] == "response.output_item.done") done.push_back(event["item"]);
  }
  EXPECT_EQ(one.whole()["output"], done);
  EXPECT_EQ(one.whole()["status"], "completed");
  EXPECT_EQ(one.whole()["usage"], Json::parse(R"({"input_tokens": 30,
                            "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
                            "output_tokens": 12, "output_tokens_details": {"reasoning_tokens": 4},
                            "total_tokens": 42})"));
}

// The fields that Open Responses' schema of a response requires, with the types it takes there.
constexpr std::array<std::pair<const char*, const char*>, 31> kFields = {{
    {"id", "string"},
    {"object", "string"},
    {"created_at", "integer"},
    {"completed_at", "integer null"},
    {"status", "string"},
    {"incomplete_details", "object null"},
    {"model", "string"},
    {"previous_response_id", "string null"},
    {"instructions", "string null"},
    {"output", "array"},
    {"error", "object null"},
    {"tools", "array"},
    {"tool_choice", "string object"},
    {"truncation", "string"},
    {"parallel_tool_calls", "boolean"},
    {"text", "object"},
    {"top_p", "number integer"},
    {"presence_penalty", "number integer"},
    {"frequency_penalty", "number integer"},
    {"top_logprobs", "integer"},
    {"temperature", "number integer"},
    {"reasoning", "object null"},
    {"usage", "object null"},
    {"max_output_tokens", "integer null"},
    {"max_tool_calls", "integer null"},
    {"store", "boolean"},
    {"background", "boolean"},
    {"service_tier", "string"},
    {"metadata", "object"},
    {"safety_identifier", "string null"},
    {"prompt_cache_key", "string null"},
}};

std::string type_of(const Json& value) {
  if (value.is_number_integer()) return "integer";
  return value.type_name();
}

void expect_open_responses(const Json& response) {
  for (const auto& [name, types] : kFields) {
    ASSERT_TRUE(response.contains(name)) << name;
    EXPECT_NE(std::string(types).find(type_of(response[name])), std::string::npos)
        << name << ": " << response[name].dump();
  }
  for (const Json& tool : response["tools"]) {
    EXPECT_EQ(tool["type"], "function");
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      EXPECT_TRUE(tool.contains(name)) << name;
    }
    EXPECT_TRUE(tool["strict"].is_boolean() || tool["strict"].is_null());
  }
}

/// The encoder's response for an answer to `body`.
Json response_to(const Json& body, FinishReason reason = FinishReason::kStopToken) {
  auto decoded = decode_responses_request(body, {.sampler = {.temperature = 0.8f, .top_p = 0.95f}},
                                          Json::array());
  const auto* error = std::get_if<ApiError>(&decoded);
  if (error != nullptr) ADD_FAILURE() << error->message;
  if (error != nullptr) return {};
  ResponseEncoder one({.identity = {.id = "resp_1", .created = 5, .model = "m"},
                       .echo = std::get<ResponsesRequest>(decoded).echo});
  const auto deltas = script::thinking_and_calling();
  for (const Json& event : events_of(stream_of(one, deltas, answer_of(deltas, reason)))) {
    if (event.contains("response")) expect_open_responses(event["response"]);
  }
  return one.whole();
}

TEST(ResponseEncoder, HasEveryFieldOfOpenResponsesWithTheValueInForce) {
  const Json silent = response_to({{"input", "Hi"}});
  EXPECT_EQ(silent["temperature"].dump(), "0.8");
  EXPECT_EQ(silent["top_p"].dump(), "0.95");
  EXPECT_EQ(silent["presence_penalty"], 0.0);
  EXPECT_EQ(silent["top_logprobs"], 0);
  EXPECT_EQ(silent["max_output_tokens"], nullptr);
  EXPECT_EQ(silent["service_tier"], "default");
  EXPECT_GE(silent["completed_at"].get<int64_t>(), 5);
  const Json said = response_to(Json::parse(R"({"input": "Hi", "max_output_tokens": 4,
      "max_tool_calls": 3, "temperature": 0.1, "top_p": 1, "presence_penalty": 0.5,
      "frequency_penalty": -0.5, "top_logprobs": 2, "safety_identifier": "u",
      "service_tier": "flex",
      "prompt_cache_key": "k", "truncation": "auto", "metadata": {"a": "b"}, "store": false,
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}},
                {"type": "function", "name": "g", "description": "d", "strict": true}]})"),
                                FinishReason::kTokensMax);
  const Json expected = Json::parse(R"({"max_output_tokens": 4, "max_tool_calls": 3,
      "temperature": 0.1, "top_p": 1.0, "presence_penalty": 0.5, "frequency_penalty": -0.5,
      "top_logprobs": 2, "safety_identifier": "u", "prompt_cache_key": "k", "store": false,
      "service_tier": "default", "truncation": "disabled", "metadata": {"a": "b"},
      "completed_at": null, "status": "incomplete"})");
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(said[name], value) << name;
  EXPECT_EQ(said["tools"][0]["strict"], false);
  EXPECT_EQ(said["tools"][0]["description"], nullptr);
  EXPECT_EQ(said["tools"][1]["strict"], true);
}

TEST(ResponseEncoder, WhatIsCutOffIsIncomplete) {
  const std::vector<AnswerDelta> deltas = {content("Once")};
  ResponseEncoder one(options());
  const auto events =
      events_of(stream_of(one, deltas, answer_of(deltas, FinishReason::kTokensMax)));
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  EXPECT_EQ(one.whole()["status"], "incomplete");
  EXPECT_EQ(one.whole()["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(one.whole()["output"][0]["status"], "incomplete");
}

TEST(ResponseEncoder, AFailureIsTheLastEvent) {
  ResponseEncoder one(options());
  one.begin();
  one.delta(content("Once"));
  const auto events = events_of(one.fail({.type = "server_error", .message = "the drive"}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["type"], "response.failed");
  EXPECT_EQ(events[0]["response"]["store"], false);
  EXPECT_EQ(events[0]["sequence_number"], 5);
  EXPECT_EQ(events[0]["response"]["error"]["message"], "the drive");
}

TEST(ResponseEncoder, ALongPromptIsSaidToGoOn) {
  ResponseEncoder one(options());
  one.begin();
  std::string bytes;
  for (int64_t i = 0; i < 40; ++i) {  // four seconds
    const double seconds = 0.1 * static_cast<double>(i + 1);
    bytes += one.progress(0, {.total = 50, .processed = i, .seconds = seconds});
  }
  bytes += one.progress(0, {.queue_position = 1, .total = 50});  // it was preempted
  const auto events = events_of(bytes);
  ASSERT_GE(events.size(), 4u);
  ASSERT_LE(events.size(), 5u);  // each has all tools of the request
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["type"], "response.in_progress");
    EXPECT_EQ(events[i]["sequence_number"], 2 + i);
  }
}

TEST(ResponseEncoder, TellsProgressAndTimingsAsLlamaCppDoes) {
  ResponseAnswerOptions telling = options();
  telling.return_progress = telling.timings_per_token = true;
  ResponseEncoder one(std::move(telling));
  const auto progress = events_of(one.progress(0, {.total = 9, .cached = 2, .processed = 3}));
  EXPECT_EQ(progress[0]["prompt_progress"]["total"], 9);
  EXPECT_EQ(progress[0]["prompt_progress"]["cache"], 2);
  const std::vector<AnswerDelta> deltas = {content("Once"), content(" upon")};
  int64_t told = 0;
  std::vector<Json> events = events_of(stream_of(one, deltas, answer_of(deltas)));
  for (const Json& event : events) {
    if (event["type"] != "response.output_text.delta") continue;
    EXPECT_EQ(event["timings"]["predicted_n"], ++told);
    EXPECT_EQ(event["timings"]["prompt_n"], 1);
    EXPECT_TRUE(event["timings"].contains("prompt_per_second"));
    EXPECT_TRUE(event["timings"].contains("predicted_per_second"));
  }
  EXPECT_EQ(told, 2);
  EXPECT_EQ(events.back()["timings"]["predicted_n"], 12);
  // A client that does not ask is told at the end alone.
  ResponseEncoder other(options());
  events = events_of(stream_of(other, deltas, answer_of(deltas)));
  for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_FALSE(events[i].contains("timings"));
}

TEST(ResponseEncoder, TellsWhoKeepsIt) {
  Json kept;
  ResponseAnswerOptions keeping = options();
  keeping.on_end = [&](const Json& response) {
    kept = response;
    return std::optional<std::string>();
  };
  ResponseEncoder one(std::move(keeping));
  stream_of(one, {content("Once")}, answer_of({content("Once")}));
  EXPECT_EQ(kept, one.whole());
}

TEST(ResponseEncoder, SaysThatItIsNotKeptAndWhy) {
  ResponseAnswerOptions failing = options();
  failing.echo["store"] = true;
  failing.on_end = [](const Json&) { return "the drive is full"; };
  ResponseEncoder one(std::move(failing));
  const auto events = events_of(stream_of(one, {content("Once")}, answer_of({content("Once")})));
  EXPECT_EQ(events.front()["response"]["store"], true);
  EXPECT_EQ(one.whole()["store"], false);
  EXPECT_EQ(one.whole()["moeflux"]["not_stored"], "the drive is full");
  EXPECT_EQ(events.back()["response"], one.whole());
}

}  // namespace
}  // namespace moeflux::serve
