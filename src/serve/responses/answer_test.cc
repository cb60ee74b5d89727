// Streams and responses as OpenAI's clients get them.
#include "serve/responses/answer.h"

#include <gtest/gtest.h>

#include <sstream>

#include "serve/answer_script_test_util.h"

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
  EXPECT_EQ(events[0]["sequence_number"], 5);
  EXPECT_EQ(events[0]["response"]["error"]["message"], "the drive");
}

TEST(ResponseEncoder, ALongPromptIsSaidToGoOn) {
  ResponseEncoder one(options());
  one.begin();
  const auto events = events_of(one.progress({.total = 9, .processed = 3}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["type"], "response.in_progress");
  EXPECT_EQ(events[0]["sequence_number"], 2);
}

TEST(ResponseEncoder, TellsWhoKeepsIt) {
  Json kept;
  ResponseAnswerOptions keeping = options();
  keeping.on_end = [&](const Json& response) { kept = response; };
  ResponseEncoder one(std::move(keeping));
  stream_of(one, {content("Once")}, answer_of({content("Once")}));
  EXPECT_EQ(kept, one.whole());
}

}  // namespace
}  // namespace moeflux::serve
