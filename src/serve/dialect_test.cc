#include "serve/dialect.h"

#include <gtest/gtest.h>

#include "serve/http/http_text.h"

namespace moeflux::serve {
namespace {

TEST(Dialect, IsThatOfThePath) {
  for (const char* path : {"/v1/messages", "/messages", "/v1/messages/count_tokens"}) {
    EXPECT_EQ(dialect_of(path), Dialect::kAnthropic) << path;
  }
  for (const char* path : {"/api/chat", "/api/unheard-of"}) {
    EXPECT_EQ(dialect_of(path), Dialect::kOllama) << path;
  }
  for (const char* path : {"", "/", "/v1/responses", "/v1/messages2", "/apis", "/v1/api/chat"}) {
    EXPECT_EQ(dialect_of(path), Dialect::kOpenAi) << path;
  }
}

TEST(Dialect, ErrorsAreThoseOfTheInterface) {
  const ApiError error{.status = 429, .type = "rate_limit_error", .message = "full"};
  EXPECT_EQ(error_text(Dialect::kOpenAi, error),
            R"({"error":{"message":"full","type":"rate_limit_error","param":null,"code":null}})");
  EXPECT_EQ(error_text(Dialect::kAnthropic, error, "req_1"),
            R"({"type":"error","error":{"type":"rate_limit_error","message":"full"},)"
            R"("request_id":"req_1"})");
  EXPECT_EQ(error_text(Dialect::kOllama, error), R"({"error":"full"})");
  // What the transport refuses by itself, too.
  EXPECT_EQ(refusal_body({401, "authentication_error", "", "no key"}, "/api/chat"),
            R"({"error":"no key"})");
}

TEST(Dialect, AnthropicsTypesFollowTheStatus) {
  const std::vector<std::pair<int, std::string>> types = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {405, "invalid_request_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},      {500, "api_error"},
      {503, "overloaded_error"}};
  for (const auto& [status, type] : types) {
    const Json body = Json::parse(error_text(Dialect::kAnthropic, {.status = status}));
    EXPECT_EQ(body["error"]["type"], type) << status;
  }
}

TEST(QueryValue, IsDecoded) {
  EXPECT_EQ(query_value("a=1&conv_id=x%20y&b", "conv_id"), "x y");
  EXPECT_EQ(query_value("a=1&b", "b"), "");
  EXPECT_EQ(query_value("ab=1", "a"), std::nullopt);
  EXPECT_EQ(query_value("a=%", "a"), std::nullopt);
  EXPECT_EQ(query_value("", "a"), std::nullopt);
}

}  // namespace
}  // namespace moeflux::serve
