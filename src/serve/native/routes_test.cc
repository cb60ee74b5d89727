#include "experts/routes/route_trace.h"
#include "serve/native/handlers.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

Request of_owner(std::string path, const std::string& owner, const Json& body = {}) {
  Request request{.method = body.is_null() ? "GET" : "POST", .path = std::move(path)};
  if (!body.is_null()) request.body = body.dump();
  request.owner = request.shares_with = owner;
  request.is_admin = false;
  return request;
}

TEST_F(ServiceTest, RoutesOfAnAnswerAreItsOwners) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("Once upon a time", 6);
  const Json plain = ask(*service, of_owner("/v1/chat/completions", "a", body))->json();
  EXPECT_FALSE(plain["moeflux"].contains("routes"));
  body["return_routes"] = true;
  const auto other = ask(*service, of_owner("/v1/chat/completions", "b", question("The king", 6)));
  const Json answer = ask(*service, of_owner("/v1/chat/completions", "a", body))->json();
  other->wait();
  EXPECT_EQ(answer["choices"], plain["choices"]);
  const std::string path = "/v1/moeflux/routes/" + answer["moeflux"]["routes"].get<std::string>();
  EXPECT_EQ(ask(*service, of_owner(path, "b"))->status(), 404);
  const Json routes = ask(*service, of_owner(path, "a"))->json();
  const int generated = answer["usage"]["completion_tokens"];
  ASSERT_GE(routes["tokens"].size(), static_cast<size_t>(generated - 1));
  EXPECT_EQ(routes["dropped"], 0);
  const int prompt = answer["usage"]["prompt_tokens"];
  for (size_t i = 0; i < routes["tokens"].size(); ++i) {
    EXPECT_EQ(routes["tokens"][i]["position"], prompt + static_cast<int>(i));
  }
  Request one = of_owner(path, "a");
  one.query = "token=1";
  const Json token = ask(*service, one)->json();
  const ModelSpec& spec = service->models().all_loaded().at(0)->model().engine->spec();
  ASSERT_EQ(token["layers"].size(), routes["layers"].size());
  EXPECT_EQ(token["layers"][0]["experts"].size(),
            static_cast<size_t>(last_moe(spec).experts_per_token));
  EXPECT_EQ(token["layers"][0]["weights"].size(), token["layers"][0]["experts"].size());
  one.query = "token=99";
  EXPECT_EQ(ask(*service, one)->status(), 400);
}

TEST_F(ServiceTest, ATraceIsRecordedBetweenStartAndStop) {
  if (testing::without_engine()) return;
  const auto service = start();
  const auto erase = [&] {
    return ask(*service, {.method = "DELETE", .path = "/v1/moeflux/trace"})->json();
  };
  const Json body = {{"prompt", "Once"}, {"max_tokens", 5}};
  EXPECT_EQ(get(*service, "/v1/moeflux/trace/csv")->status(), 409);
  EXPECT_EQ(ask(*service, of_owner("/v1/moeflux/trace", "a"))->status(), 403);
  EXPECT_EQ(post(*service, "/v1/moeflux/trace", Json::object())->json()["recording"], true);
  EXPECT_EQ(post(*service, "/v1/moeflux/trace", Json::object())->status(), 409);
  post(*service, "/v1/completions", body)->wait();
  EXPECT_EQ(get(*service, "/v1/moeflux/trace/csv")->status(), 409);
  const Json stopped = erase();
  EXPECT_EQ(stopped["recording"], false);
  EXPECT_EQ(stopped["available"], true);
  post(*service, "/v1/completions", body)->wait();
  const std::string text = get(*service, "/v1/moeflux/trace/csv")->wait();
  EXPECT_EQ(text.size(), stopped["bytes"]);
  const auto trace = RouteTrace::parse(text);
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_GT(trace->visits().size(), 0u);
  EXPECT_EQ(get(*service, "/v1/moeflux/trace/replay")->status(), 404);  // no program is around
}

TEST_F(ServiceTest, ATraceWithoutRoutesCannotBeReplayed) {
  if (testing::without_engine()) return;
  ServiceOptions options;
  options.page.replay = [](const std::string& text, int) -> Result<Json> {
    const Result<RouteTrace> trace = RouteTrace::parse(text);
    if (!trace.ok()) return trace.error();
    return Json{{"visits", trace->visits().size()}};
  };
  const auto service = start(std::move(options));
  const auto record = [&](int answers) {
    post(*service, "/v1/moeflux/trace", Json::object())->wait();
    for (int i = 0; i < answers; ++i) {
      post(*service, "/v1/completions", {{"prompt", "Once"}, {"max_tokens", 3}})->wait();
    }
    ask(*service, {.method = "DELETE", .path = "/v1/moeflux/trace"})->wait();
    return get(*service, "/v1/moeflux/trace/replay");
  };
  const auto empty = record(0);
  EXPECT_EQ(empty->status(), 409) << empty->wait();
  EXPECT_EQ(empty->json()["error"]["code"], "no_routes");
  const auto full = record(1);
  EXPECT_EQ(full->status(), 200) << full->wait();
  EXPECT_GT(full->json()["visits"], 0);
}

TEST_F(ServiceTest, ATraceEndsAtItsLimit) {
  if (testing::without_engine()) return;
  const auto service = start();
  post(*service, "/v1/moeflux/trace", {{"bytes_max", 2000}})->wait();
  post(*service, "/v1/completions", {{"prompt", "Once"}, {"max_tokens", 5}})->wait();
  const Json status = get(*service, "/v1/moeflux/trace")->json();
  EXPECT_EQ(status["full"], true);
  EXPECT_EQ(status["recording"], false);
  EXPECT_GE(status["bytes"], 2000);
  EXPECT_EQ(post(*service, "/v1/moeflux/trace", Json::object())->json()["recording"], true);
}

TEST(RouteRecord, DropsWhatHasNoRoom) {
  RouteRecord record(1000);
  const std::vector<int32_t> ids(8);
  for (int i = 0; i < 10; ++i) {
    record.add({.position = i, .tokens = 1, .ids = ids}, {}, 5);
    record.end_token({});
  }
  EXPECT_EQ(record.tokens().size() + record.dropped(), 10u);
  EXPECT_GT(record.dropped(), 0u);
  EXPECT_EQ(record.tokens()[0].read_bytes, 5u);
}

}  // namespace
}  // namespace moeflux::serve
