#include "serve/native/watching.h"

#include <atomic>
#include <thread>

#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

std::shared_ptr<OpenModel> model_of(Service& service) {
  return service.models().all_loaded().at(0)->shared_model();
}

Request of_key(std::string method, std::string path, const std::string& owner,
               const Json& body = {}) {
  Request request{.method = std::move(method), .path = std::move(path)};
  if (!body.is_null()) request.body = body.dump();
  request.owner = request.shares_with = owner;
  request.is_admin = false;
  return request;
}

Json last_frame(const std::string& stream) {
  const size_t begin = stream.rfind("data: ");
  return Json::parse(stream.substr(begin + 6));
}

const Json kAsk = {{"prompt", "Once"}, {"max_tokens", 3}};

TEST_F(ServiceTest, MapsOfExpertsAreMadeWhileSomebodyWatches) {
  if (testing::without_engine()) return;
  const auto service = start();
  for (int i = 0; i < 3; ++i) post(*service, "/v1/completions", kAsk)->wait();
  const auto model = model_of(*service);
  EXPECT_EQ(model->expert_map(), nullptr);  // asks for one: the only one that follows
  for (int i = 0; i < 3; ++i) post(*service, "/v1/completions", kAsk)->wait();
  EXPECT_EQ(model->expert_map()->number, 1u);
  const auto watcher = get(*service, "/v1/moeflux/telemetry");
  const Json first = last_frame(watcher->begun());
  EXPECT_EQ(first["residency"]["whole"], true);
  EXPECT_EQ(first["tiers"]["memory"].get<int>() + first["tiers"]["drive"].get<int>(),
            static_cast<int>(model->expert_map()->places.size()));
  for (int i = 0; i < 3; ++i) {
    post(*service, "/v1/completions", kAsk)->wait();
    EXPECT_TRUE(last_frame(watcher->speech())["tiers"].is_object());
  }
  service->end_watching();
  watcher->wait();
  const uint64_t made = model->expert_map()->number;
  for (int i = 0; i < 3; ++i) post(*service, "/v1/completions", kAsk)->wait();
  EXPECT_EQ(model->expert_map()->number, made + 1);
}

TEST_F(ServiceTest, AForecastNamesTheModelAsClientsDo) {
  if (testing::without_engine()) return;
  const auto forecast = [](const Json& machine, const std::string& model) -> Result<Json> {
    return Json{{"model", machine.contains("like") ? machine["like"].get<std::string>() : model}};
  };
  const auto service = start({.page = {.forecast = forecast}});
  const Json own = post(*service, "/v1/moeflux/forecast", {{"ram_bytes", 1}})->json();
  EXPECT_EQ(own["model"], get(*service, "/v1/models")->json()["data"][0]["id"]);
  const Json other =
      post(*service, "/v1/moeflux/forecast", {{"ram_bytes", 1}, {"like", "org-a/b"}})->json();
  EXPECT_EQ(other["model"], "org-a/b");
}

TEST_F(ServiceTest, KeysSeeSumsAndNothingOfEachOther) {
  if (testing::without_engine()) return;
  const auto service = start({.page = {.keeps_chats = true}});
  const auto watcher = ask(*service, of_key("GET", "/v1/moeflux/telemetry", "a"));
  ask(*service, of_key("POST", "/v1/completions", "b", kAsk))->wait();
  const Json frame = last_frame(watcher->speech());
  EXPECT_TRUE(frame.contains("tiers"));
  EXPECT_FALSE(frame.contains("residency"));
  EXPECT_FALSE(frame.contains("used"));
  service->end_watching();
  for (const char* path :
       {"/v1/moeflux/experts", "/v1/moeflux/plan", "/v1/moeflux/options", "/v1/moeflux/log"}) {
    const auto refused = ask(*service, of_key("GET", path, "a"));
    EXPECT_EQ(refused->status(), 403) << path;
    EXPECT_NE(refused->wait().find("--admin-key"), std::string::npos);
  }
  const Json features = ask(*service, of_key("GET", "/v1/moeflux/features", "a"))->json();
  EXPECT_EQ(features["admin"], false);
  EXPECT_EQ(features["residency"], false);
  EXPECT_EQ(features["chats"], true);

  const Json chat = {{"title", "mine"}};
  EXPECT_EQ(ask(*service, of_key("POST", "/v1/moeflux/chats/one", "a", chat))->status(), 200);
  EXPECT_EQ(ask(*service, of_key("GET", "/v1/moeflux/chats/one", "a"))->json(), chat);
  EXPECT_EQ(ask(*service, of_key("GET", "/v1/moeflux/chats/one", "b"))->status(), 404);
  EXPECT_EQ(ask(*service, of_key("GET", "/v1/moeflux/chats", "b"))->json()["chats"].size(), 0u);
  EXPECT_EQ(ask(*service, of_key("DELETE", "/v1/moeflux/chats/one", "b"))->status(), 404);
  EXPECT_EQ(ask(*service, of_key("GET", "/v1/moeflux/chats", "a"))->json()["chats"].size(), 1u);
  EXPECT_EQ(ask(*service, of_key("DELETE", "/v1/moeflux/chats/one", "a"))->status(), 200);
}

TEST_F(ServiceTest, ChatsAreBoundedAndKeptWhereAllowed) {
  if (testing::without_engine()) return;
  EXPECT_EQ(get(*start(), "/v1/moeflux/chats")->status(), 404);
  const auto service = start({.chats = {.bytes_max = 100, .count_max = 2, .makes_room = false},
                              .page = {.keeps_chats = true}});
  EXPECT_EQ(post(*service, "/v1/moeflux/chats/a", Json::array())->status(), 400);
  EXPECT_EQ(post(*service, "/v1/moeflux/chats/..", Json::object())->status(), 400);
  const Json large = {{"text", std::string(200, 'x')}};
  EXPECT_EQ(post(*service, "/v1/moeflux/chats/a", large)->json()["error"]["code"], "chats_full");
  EXPECT_EQ(post(*service, "/v1/moeflux/chats/a", Json::object())->status(), 200);
}

TEST_F(ServiceTest, ThePageSeesModelOptionsAndLog) {
  if (testing::without_engine()) return;
  const auto service = start({.page = {.options = {{"--port", "8080", true}}}});
  const Json model = get(*service, "/v1/moeflux/model")->json();
  EXPECT_GT(model["experts"], 0);
  EXPECT_GT(model["formats"].size(), 0u);
  EXPECT_TRUE(model["template"].is_object());
  const Json options = get(*service, "/v1/moeflux/options")->json()["options"];
  EXPECT_EQ(options, Json::parse(R"([{"name":"--port","value":"8080","given":true}])"));
  const Json experts = get(*service, "/v1/moeflux/experts")->json();
  EXPECT_EQ(experts["layers"].size(), model["layers"]);
  EXPECT_GT(experts["layers"][0]["expert_bytes"], 0);

  const auto log = get(*service, "/v1/moeflux/log");
  post(*service, "/v1/completions", {{"prompt", "Once"}, {"max_tokens", 1}, {"unknown", 1}})
      ->wait();
  const Json line = last_frame(log->speech());
  EXPECT_EQ(line["n"], 1);
  EXPECT_NE(line["line"].get<std::string>().find("unknown"), std::string::npos);
  EXPECT_EQ(log->speech(), ": keep-alive\n\n");
  service->end_watching();
}

TEST(LogRing, KeepsTheLastLinesAndTheirBeginnings) {
  LogRing ring;
  for (size_t i = 0; i < LogRing::kLinesMax + 5; ++i) ring.add(std::string(5000, 'x'));
  const auto lines = ring.after(0);
  ASSERT_EQ(lines.size(), LogRing::kLinesMax);
  EXPECT_EQ(lines.front().number, 6u);
  EXPECT_EQ(lines.front().text.size(), LogRing::kLineBytesMax);
  EXPECT_TRUE(ring.after(lines.back().number).empty());
}

TEST_F(ServiceTest, ToolsAreAskedOnTheirOwnThreads) {
  if (testing::without_engine()) return;
  EXPECT_EQ(get(*start(), "/v1/moeflux/mcp")->status(), 404);
  std::atomic<int> given_up = 0;
  const auto list = [](const auto&) { return Json::array({{{"name", "host/mcp"}}}); };
  const auto call = [&](const std::string& server, const std::string& tool, const Json& arguments,
                        const ToolServers::GivenUp& is_given_up) -> Result<Json> {
    if (server != "host/mcp") return make_error(ErrorCode::kNotFound, "no server");
    if (tool == "bad") return make_error(ErrorCode::kCorruption, "bad JSON");
    if (tool == "slow") {
      while (!is_given_up()) std::this_thread::yield();
      ++given_up;
      return make_error(ErrorCode::kCancelled, "given up");
    }
    return Json{{"content", arguments.dump()}};
  };
  auto service = start({.page = {.tools = {.list = list, .call = call}}});
  EXPECT_EQ(get(*service, "/v1/moeflux/mcp")->json()["servers"][0]["name"], "host/mcp");
  const auto body = [](const char* tool, const char* server = "host/mcp") {
    return Json{{"server", server}, {"tool", tool}, {"arguments", {{"a", 1}}}};
  };
  EXPECT_EQ(post(*service, "/v1/moeflux/mcp", body("echo"))->json()["content"], R"({"a":1})");
  EXPECT_EQ(post(*service, "/v1/moeflux/mcp", body("bad"))->status(), 502);
  EXPECT_EQ(post(*service, "/v1/moeflux/mcp", body("echo", "other"))->status(), 404);
  EXPECT_EQ(post(*service, "/v1/moeflux/mcp", {{"server", "host/mcp"}})->status(), 400);
  std::vector<std::shared_ptr<MemoryResponse>> waiting;
  for (int i = 0; i < 33; ++i) waiting.push_back(post(*service, "/v1/moeflux/mcp", body("slow")));
  EXPECT_EQ(waiting.back()->status(), 429);
  service.reset();
  EXPECT_EQ(given_up, 32);
}

}  // namespace
}  // namespace moeflux::serve
