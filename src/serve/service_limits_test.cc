// Refusals before anything is computed, and the answers of a service while it ends.
#include "serve/service_limits.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>

#include "base/format.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

Json error_of(MemoryResponse& response) { return response.json()["error"]; }

TEST_F(ServiceTest, APromptIsRefusedByItsLengthBeforeItIsRead) {
  const auto service = start();
  const size_t longest = service->models().all_loaded().front()->prompt_bytes_max();
  Json body = question(std::string(longest + 1, 'a'), 1);
  auto answer = post(*service, "/v1/chat/completions", body);
  EXPECT_EQ(answer->status(), 400);
  EXPECT_EQ(error_of(*answer)["code"], "context_length_exceeded");
  EXPECT_NE(error_of(*answer)["message"].get<std::string>().find("bytes"), std::string::npos);
  body = {{"prompt", Json::array({"a", std::string(longest, 'a')})}, {"max_tokens", 1}};
  answer = post(*service, "/v1/completions", body);
  EXPECT_EQ(error_of(*answer)["code"], "context_length_exceeded");
  body = {{"prompt", std::string(longest + 1, 'a')}, {"raw", true}, {"model", "fable-20m"}};
  EXPECT_EQ(post(*service, "/api/generate", body)->status(), 400);
  // A prompt that might fit is tokenized first.
  answer = post(*service, "/v1/chat/completions", question(std::string(10'000, 'a'), 1));
  EXPECT_NE(error_of(*answer)["message"].get<std::string>().find("tokens"), std::string::npos);
}

TEST_F(ServiceTest, MoreMessagesThanTokensAreRefusedUnread) {
  const auto service = start();
  Json many = Json::array();
  for (int i = 0; i < 257; ++i) many.push_back({{"role", "nobody"}});
  for (const auto& [path, name] :
       std::map<std::string, std::string>{{"/v1/chat/completions", "messages"},
                                          {"/v1/messages", "messages"},
                                          {"/v1/responses", "input"},
                                          {"/api/chat", "messages"}}) {
    const auto answer = post(*service, path, {{name, many}, {"max_tokens", 1}});
    EXPECT_EQ(answer->status(), 400) << path;
    EXPECT_NE(answer->wait().find("257 " + name), std::string::npos) << answer->wait();
  }
}

TEST_F(ServiceTest, ARequestThatIsTakenIsTakenWhole) {
  const auto service = start({.scheduler = {.queue_max = 2, .active_max = 1}});
  Json body = {{"prompt", Json::array()}, {"max_tokens", 1}, {"n", 2}};
  for (int i = 0; i < 6; ++i) body["prompt"].push_back("Once");
  EXPECT_EQ(post(*service, "/v1/completions", body)->json()["choices"].size(), 12u);
  body["prompt"] = "Once";
  body["n"] = 20;
  EXPECT_EQ(post(*service, "/v1/completions", body)->json()["choices"].size(), 20u);
}

TEST_F(ServiceTest, ManyChoicesAreForShortPrompts) {
  const auto service = start();
  const std::vector<int> prompt(100, 5);
  const Json body = {{"prompt", prompt}, {"max_tokens", 1}, {"n", 128}};
  const Json refused = post(*service, "/v1/completions", body)->json();
  EXPECT_EQ(refused["error"]["param"], "n") << refused;
}

TEST_F(ServiceTest, ABodyOfMillionsOfValuesIsRefused) {
  const auto service = start();
  std::string lists = "[[]";
  for (size_t i = 0; i < kBodyValuesMax; ++i) lists += ",[]";
  auto response = std::make_shared<MemoryResponse>();
  service->handle({.method = "POST",
                   .path = "/v1/completions",
                   .body = "{\"prompt\":\"a\",\"x\":" + lists + "]}"},
                  response);
  EXPECT_EQ(response->status(), 400);
  EXPECT_NE(error_of(*response)["message"].get<std::string>().find("values"), std::string::npos);
}

TEST_F(ServiceTest, AnObjectOfManyKeysIsAnsweredWhicheverFieldHasIt) {
  const auto service = start();
  Json keys = Json::object();
  for (int i = 0; i < 100'000; ++i) keys[formatted("k{}", i)] = i;
  for (const char* name : {"unknown", "metadata", "chat_template_kwargs", "logit_bias",
                           "json_schema", "stream_options", "response_format"}) {
    Json body = question("Hello", 1);
    body[name] = keys;
    EXPECT_NE(post(*service, "/v1/chat/completions", body)->status(), 500) << name;
  }
  Json many = question("Hello", 1);
  for (const auto& [name, value] : keys.items()) many[name] = value;
  EXPECT_EQ(post(*service, "/v1/chat/completions", many)->status(), 200);
}

TEST_F(ServiceTest, SaysThatItDrainsAndTakesNothingNew) {
  const auto service = start();
  EXPECT_EQ(get(*service, "/health")->json()["status"], "ok");
  service->refuse();
  const auto health = get(*service, "/health");
  EXPECT_EQ(health->status(), 503);
  EXPECT_EQ(health->json()["status"], "draining");
  EXPECT_EQ(post(*service, "/v1/completions", {{"prompt", "a"}})->status(), 503);
  EXPECT_EQ(get(*service, "/metrics")->status(), 200);
  EXPECT_TRUE(service->drain_within(std::chrono::seconds(60)));
}

TEST_F(ServiceTest, AStreamWithoutAClientDoesNotOutliveTheEnd) {
  const auto service = start();
  auto response = std::make_shared<MemoryResponse>();
  Json body = question("Hello", 200);
  body["stream"] = body["ignore_eos"] = true;
  response->be_slow();  // so that it parks
  service->handle({.method = "POST",
                   .path = "/v1/chat/completions",
                   .headers = {{"x-conversation-id", "a"}},
                   .body = body.dump()},
                  response);
  while (service->counters().parked == 0) std::this_thread::yield();
  EXPECT_FALSE(service->drain_within(std::chrono::milliseconds(10)));
  service->end_streams();
  service->drain();
  EXPECT_EQ(service->counters().running, 0);
}

TEST(IsAtOnce, TheCheapOnesAre) {
  const auto is_at_once = [](const char* method, const char* path) {
    return Service::is_at_once({.method = method, .path = path});
  };
  for (const char* path :
       {"/health", "/v1/health", "/metrics", "/v1/models", "/v1/models/a", "/api/tags", "/slots"}) {
    EXPECT_TRUE(is_at_once("GET", path)) << path;
    EXPECT_FALSE(is_at_once("POST", path)) << path;
  }
  // These read a drive.
  EXPECT_FALSE(is_at_once("GET", "/v1/responses/a"));
  EXPECT_FALSE(is_at_once("GET", "/v1/moeflux/conversations/a"));
}

}  // namespace
}  // namespace moeflux::serve
