#include "cli/request_log.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace moeflux {
namespace {

class NullResponse : public serve::Response {
 public:
  void send(int, serve::Headers, std::string body) override { bytes += body; }
  void begin(int, serve::Headers) override {}
  void write(std::string piece) override { bytes += piece; }
  void end() override {}
  void keep_alive(std::string, std::chrono::milliseconds) override {}
  size_t unsent_bytes() const override { return 7; }
  void when_drained(size_t, std::function<void()> drained) override { drained(); }
  void when_closed(std::function<void()>) override {}
  bool is_closed() const override { return false; }

  std::string bytes;
};

struct Logged {
  std::shared_ptr<NullResponse> inner = std::make_shared<NullResponse>();
  std::vector<std::string> lines;
  std::shared_ptr<serve::Response> response =
      logged({.method = "POST", .path = "/v1/completions", .query = "key=secret", .body = "secret"},
             inner, [this](const std::string& line) { lines.push_back(line); });
};

TEST(RequestLog, OneLineSaysMethodPathStatusTokensAndSecondsButNoText) {
  Logged log;
  log.response->begin(200, {});
  log.response->write("secret");
  log.response->count_tokens(12, 34);
  EXPECT_EQ(log.response->unsent_bytes(), 7u);
  EXPECT_TRUE(log.lines.empty());
  log.response->end();
  log.response.reset();
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_EQ(log.lines[0].rfind("POST /v1/completions 200, 12 + 34 tokens, 0.", 0), 0u);
  EXPECT_EQ(log.lines[0].find("secret"), std::string::npos);
  EXPECT_EQ(log.inner->bytes, "secret");
}

TEST(RequestLog, AnErrorHasNoTokensAndWhatNobodyEndedIsClosed) {
  Logged refused;
  refused.response->send(400, {}, "{}");
  ASSERT_EQ(refused.lines.size(), 1u);
  EXPECT_EQ(refused.lines[0].rfind("POST /v1/completions 400, 0.", 0), 0u);
  Logged left;
  left.response->begin(200, {});
  left.response.reset();
  ASSERT_EQ(left.lines.size(), 1u);
  EXPECT_EQ(left.lines[0].rfind("POST /v1/completions 200 closed, ", 0), 0u);
}

TEST(RequestLog, WhatTheTransportAnswersHasStatusAndReasonButNeitherQueryHeadersNorBody) {
  const serve::Request request{.method = "POST",
                               .path = "/v1/completions",
                               .query = "key=secret",
                               .headers = {{"x-api-key", "secret"}},
                               .body = "secret"};
  EXPECT_EQ(own_answer_line(request, 401, "no valid API key"),
            "POST /v1/completions 401 refused: no valid API key");
  EXPECT_EQ(own_answer_line(request, 204, ""), "POST /v1/completions 204");
  EXPECT_EQ(own_answer_line({}, 400, "not a well-formed HTTP request"),
            "unread request 400 refused: not a well-formed HTTP request");
}

}  // namespace
}  // namespace moeflux
