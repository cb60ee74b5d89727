// Streams and messages as Anthropic's clients get them.
#include "serve/anthropic/answer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "serve/answer/answer_script_test_util.h"

namespace moeflux::serve {
namespace {

using script::answer_of;
using script::content;
using script::stream_of;

MessageEncoder encoder(int64_t tokens_max = 100) {
  return MessageEncoder({.identity = {.id = "msg_1", .model = "m", .seed = 7},
                         .prompt_tokens = 30,
                         .tokens_max = tokens_max});
}

// Blocks of each kind, none within another.
std::string transcript() {
  std::ifstream file(std::string(MOEFLUX_SOURCE_DIR) + "/tests/serve/transcripts/messages.events");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(MessageEncoder, SaysAnAnswerInBlocks) {
  const auto deltas = script::thinking_and_calling();
  MessageEncoder stream = encoder();
  EXPECT_EQ(stream_of(stream, deltas, answer_of(deltas)), transcript());
  const Json expected = Json::parse(R"({
      "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
      "content": [
        {"type": "thinking", "thinking": "Let me look.", "signature": "moeflux"},
        {"type": "text", "text": "I look it up."},
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {"place": "hill"}}],
      "stop_reason": "tool_use", "stop_sequence": null,
      "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 20, "output_tokens": 12},
      "moeflux": {"seed": 7, "expert_hit_rate": null, "bytes_read": 0, "stall_ms": 0.0}})");
  EXPECT_EQ(stream.whole(), expected);
}

TEST(MessageEncoder, TellsWhyItEnded) {
  const auto reason = [](AnswerPart answer, int64_t tokens_max) {
    MessageEncoder one = encoder(tokens_max);
    stream_of(one, {content("a")}, answer);
    return one.whole()["stop_reason"].get<std::string>();
  };
  const std::vector<AnswerDelta> said = {content("a")};
  EXPECT_EQ(reason(answer_of(said), 100), "end_turn");
  EXPECT_EQ(reason(answer_of(said, FinishReason::kTokensMax), 12), "max_tokens");
  // The rest of the context was less than what was asked for.
  EXPECT_EQ(reason(answer_of(said, FinishReason::kTokensMax), 100),
            "model_context_window_exceeded");
  EXPECT_EQ(reason(answer_of(said, FinishReason::kContextFull), -1),
            "model_context_window_exceeded");
  AnswerPart stopped = answer_of(said, FinishReason::kStopString);
  stopped.stopped_by = "END";
  MessageEncoder one = encoder();
  stream_of(one, said, stopped);
  EXPECT_EQ(one.whole()["stop_reason"], "stop_sequence");
  EXPECT_EQ(one.whole()["stop_sequence"], "END");
}

TEST(MessageEncoder, AFailureIsTheLastEvent) {
  MessageEncoder one = encoder();
  EXPECT_EQ(one.fail({.status = 500, .type = "server_error", .message = "the drive"}),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
            "\"message\":\"the drive\"},\"request_id\":null}\n\n");
}

TEST(MessageEncoder, APromptThatIsTooLongIsSaidInAnthropicsWords) {
  ApiError error{.type = std::string(kTooLong), .message = "the prompt has 9 bytes"};
  const auto message = [&] {
    return Json::parse(anthropic_error_text(error))["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(message(), "prompt is too long: the prompt has 9 bytes");
  error.details = {{"n_prompt_tokens", 19511}, {"n_ctx", 8192}};
  EXPECT_TRUE(message().starts_with("prompt is too long: 19511 tokens > 8192 maximum"));
}

TEST(MessageEncoder, ACallThatIsCutOffHasNoInput) {
  const std::vector<AnswerDelta> deltas = {script::call_begin(0, "call_1", "look"),
                                           script::call_arguments(0, "{\"pla"),
                                           script::call_end(0, false)};
  MessageEncoder one = encoder(12);
  stream_of(one, deltas, answer_of(deltas, FinishReason::kTokensMax));
  EXPECT_EQ(one.whole()["content"][0]["input"], Json::object());
  EXPECT_EQ(one.whole()["stop_reason"], "max_tokens");
}

}  // namespace
}  // namespace moeflux::serve
