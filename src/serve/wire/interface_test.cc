#include "serve/wire/interface.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "serve/http/http_text.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

std::string_view home_of(std::string_view path) { return find_route("POST", path).interface->home; }

std::string error_at(std::string_view path, const ApiError& error, std::string_view id = {}) {
  return find_route("POST", path).interface->error_text(error, id);
}

TEST(Interface, OwnsWhatLiesBelowItsHome) {
  for (const char* path : {"/v1/messages", "/messages", "/v1/messages/count_tokens", "//messages/",
                           "/messages/unheard-of"}) {
    EXPECT_EQ(home_of(path), "/messages") << path;
  }
  for (const char* path : {"/api/chat", "/api/unheard-of", "/v1/api/chat", "/api"}) {
    EXPECT_EQ(home_of(path), "/api") << path;
  }
  for (const char* path : {"", "/nothing", "/v1/chat/completions", "/v1/messages2", "/apis"}) {
    EXPECT_EQ(home_of(path), "") << path;
  }
}

TEST(Interface, OneIsAtHomeEverywhere) {
  int everywhere = 0;
  for (const Interface* one : interfaces()) everywhere += one->home.empty() ? 1 : 0;
  EXPECT_EQ(everywhere, 1);
}

TEST(Interface, NoTwoAnswerTheSame) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const Interface* one : interfaces()) {
    for (const Route& route : one->routes) {
      EXPECT_TRUE(seen.emplace(route.method, route.path).second) << route.path;
      EXPECT_EQ(route_path(route.path), route.path) << "nobody gets there";
    }
  }
  EXPECT_EQ(seen.size(), count_routes());
}

TEST(Interface, ErrorsAreInItsWords) {
  const ApiError error{.status = 429, .type = "rate_limit_error", .message = "full"};
  EXPECT_EQ(error_at("/v1/completions", error),
            R"({"error":{"message":"full","type":"rate_limit_error","param":null,"code":null}})");
  EXPECT_EQ(error_at("/v1/messages", error, "req_1"),
            R"({"type":"error","error":{"type":"rate_limit_error","message":"full"},)"
            R"("request_id":"req_1"})");
  EXPECT_EQ(error_at("/api/chat", error), R"({"error":"full"})");
  // Errors of the transport itself, too.
  EXPECT_EQ(refusal_body({401, "authentication_error", "", "no key"}, "/api/chat"),
            R"({"error":"no key"})");
}

TEST(Interface, AnthropicsTypesFollowTheStatus) {
  const std::vector<std::pair<int, std::string>> types = {
      {400, "invalid_request_error"}, {401, "authentication_error"},
      {403, "permission_error"},      {404, "not_found_error"},
      {405, "invalid_request_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},      {500, "api_error"},
      {503, "overloaded_error"}};
  for (const auto& [status, type] : types) {
    const Json body = Json::parse(error_at("/messages", {.status = status}));
    EXPECT_EQ(body["error"]["type"], type) << status;
  }
}

TEST(Route, IsFoundHoweverClientsWriteThePath) {
  for (const char* path : {"/chat/completions", "/v1/chat/completions", "/v1/chat/completions/",
                           "//v1/chat/completions", "/v1//chat//completions//"}) {
    EXPECT_EQ(route_path(path), "/chat/completions") << path;
  }
  for (const char* path : {"", "/", "//", "/v1", "/v1/"}) EXPECT_EQ(route_path(path), "/") << path;
  EXPECT_EQ(route_path("/v10/models"), "/v10/models");
  EXPECT_EQ(route_path("/v1/v1/models"), "/v1/models");
  for (const char* path : {"/v1", "/v1/", "//v1/completions"}) EXPECT_TRUE(has_version(path));
  for (const char* path : {"", "/", "/completions/v1", "/v10/models"}) {
    EXPECT_FALSE(has_version(path)) << path;
  }
}

TEST(Route, ANameMayHaveSlashesAndAnIdNone) {
  EXPECT_EQ(find_route("GET", "/v1/models/org/name").id, "org/name");
  EXPECT_EQ(find_route("GET", "/v1/models/org/name/").id, "org/name");
  EXPECT_EQ(find_route("HEAD", "/models/name").id, "name");
  EXPECT_EQ(find_route("GET", "/responses/resp_1").id, "resp_1");
  EXPECT_EQ(find_route("GET", "/responses/resp_1/input_items").route->path,
            "/responses/{id}/input_items");
  EXPECT_EQ(find_route("GET", "/responses/a/b").route, nullptr);
}

TEST(Route, OfAnotherMethodSaysWhichThereAre) {
  EXPECT_EQ(find_route("POST", "/v1/responses/resp_1").allowed, "GET, DELETE");
  EXPECT_EQ(find_route("POST", "/v1/nothing").allowed, "");
  EXPECT_EQ(find_route("POST", "/v1/nothing").number, count_routes());
}

TEST_F(ServiceTest, EveryPathIsDescribed) {
  const auto service = start();
  const Json paths = get(*service, "/openapi.json")->json()["paths"];
  size_t described = 0;
  for (const AskedCount& one : service->asked()) {
    std::string method = one.method;
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    for (const std::string& path : {one.path, "/v1" + one.path}) {
      if (paths.contains(path) && paths[path].contains(method)) ++described;
    }
  }
  size_t operations = 0;
  for (const auto& [path, methods] : paths.items()) operations += methods.size();
  EXPECT_EQ(described, operations);
  // But for this page, what is not offered, and paths that there are not; /completions is two.
  EXPECT_EQ(described, service->asked().size() - 6 + 1);
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
