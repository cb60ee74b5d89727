#include "library/chat_reader.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

constexpr std::string_view kStream =
    R"(data: {"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]})"
    "\n\n: keep-alive\n\n"
    R"(data: {"choices":[{"delta":{"reasoning_content":"Hm."}}],"usage":null})"
    "\n\n"
    R"(data: {"choices":[{"delta":{"content":"It is "}}]})"
    "\n\n"
    R"(data: {"choices":[{"delta":{"content":"\n\n18."}}]})"
    "\n\n"
    R"(data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":)"
    R"({"name":"get","arguments":""}}]}}]})"
    "\n\n"
    R"(data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":)"
    R"({"arguments":"{\"x\":"}}]}}]})"
    "\n\n"
    R"(data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]})"
    "\n\n"
    R"(data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]})"
    "\n\n"
    R"(data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}})"
    "\n\ndata: [DONE]\n\n";

TEST(ChatReader, ReadsAStreamHoweverItIsCut) {
  for (const size_t piece : {size_t{1}, size_t{7}, kStream.size()}) {
    ChatReader reader;
    std::string text;
    std::string reasoning;
    for (size_t at = 0; at < kStream.size(); at += piece) {
      const bool ended = at + piece >= kStream.size();
      const Status read = reader.read(200, kStream.substr(at, piece), ended);
      ASSERT_TRUE(read.ok()) << read.error().to_string();
      text += reader.text();
      reasoning += reader.reasoning();
    }
    EXPECT_EQ(text, "It is \n\n18.");
    EXPECT_EQ(reasoning, "Hm.");
    ASSERT_EQ(reader.calls().size(), 1u);
    EXPECT_EQ(reader.calls()[0].id, "a");
    EXPECT_EQ(reader.calls()[0].name, "get");
    EXPECT_EQ(reader.calls()[0].arguments, R"({"x":1})");
    EXPECT_EQ(reader.finish_reason(), "tool_calls");
    EXPECT_EQ(reader.prompt_tokens(), 7);
    EXPECT_EQ(reader.generated_tokens(), 5);
  }
}

TEST(ChatReader, FailsAsTheServiceRefuses) {
  const auto refusal = [](int status, std::string_view type) {
    ChatReader reader;
    const std::string body = R"({"error":{"type":")" + std::string(type) + R"(","message":"why"}})";
    EXPECT_TRUE(reader.read(status, body.substr(0, 9), false).ok()) << "the body goes on";
    const Status read = reader.read(status, body.substr(9), true);
    EXPECT_FALSE(read.ok());
    EXPECT_EQ(read.error().message(), "why");
    return read.error().code();
  };
  EXPECT_EQ(refusal(400, "invalid_request_error"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal(404, "not_found_error"), ErrorCode::kNotFound);
  EXPECT_EQ(refusal(429, "rate_limit_error"), ErrorCode::kResourceExhausted);
  EXPECT_EQ(refusal(400, "exceed_context_size_error"), ErrorCode::kResourceExhausted);
  EXPECT_EQ(refusal(503, "unavailable_error"), ErrorCode::kCancelled);
  EXPECT_EQ(refusal(500, "server_error"), ErrorCode::kFailedPrecondition);
}

TEST(ChatReader, FailsWhereAStreamBreaksOff) {
  ChatReader reader;
  const Status read = reader.read(
      200, "data: {\"error\":{\"type\":\"server_error\",\"message\":\"a drive\"}}\n\n", false);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message(), "a drive");
}

}  // namespace
}  // namespace moeflux
