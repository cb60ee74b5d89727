// Several models in one service: loaded when they are named, waited for, and gone again.
#include "serve/models.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <thread>

#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

/// Names for the embedded model, whose loads a test may hold up or let fail.
class TestCatalog : public ModelCatalog {
 public:
  explicit TestCatalog(std::set<std::string> names) : names_(std::move(names)) {}

  std::vector<CatalogModel> list() override {
    const std::lock_guard lock(mutex_);
    std::vector<CatalogModel> models;
    for (const std::string& name : names_) models.push_back({.name = name, .source = "hub"});
    return models;
  }
  Result<ModelRoom> measure(const std::string& /*name*/) override { return room_; }
  Result<ServedModel> load(const LoadRequest& request) override {
    const std::stop_callback wake(request.stop, [&] {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    });
    bool tells = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !is_held_ || request.stop.stop_requested(); });
      loads_.push_back(request.name);
      tells = tells_progress_;
    }
    if (tells) {
      request.progress(1, 4);
      request.progress(4, 4);
    }
    {
      const std::lock_guard lock(mutex_);
      if (failing_.contains(request.name)) {
        return make_error(ErrorCode::kCorruption, "/secret/place/model.gguf: no magic");
      }
    }
    const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
    MF_ASSIGN_OR_RETURN(ModelText text, load_model_text(fable));
    MF_ASSIGN_OR_RETURN(auto model,
                        open_model(fable,
                                   {.device = {.threads = 1},
                                    .engine = {.context_length = 256, .reader_threads = 1}},
                                   std::move(text)));
    return ServedModel{std::move(model), {.template_text = kTemplate}};
  }
  Status pull(const PullRequest& request) override {
    if (request.name.find('/') == std::string::npos) {
      return make_error(ErrorCode::kInvalidArgument, "{} is not ORG/NAME", request.name);
    }
    request.progress(1, 2);
    request.progress(2, 2);
    const std::lock_guard lock(mutex_);
    names_.insert(request.name);
    return {};
  }
  Status remove(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    if (name == "foreign") {
      return make_error(ErrorCode::kInvalidArgument, "foreign is another program's");
    }
    names_.erase(name);
    return {};
  }

  void hold(bool is_held) {
    const std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
  }
  void tell_progress() { tells_progress_ = true; }
  void fail(const std::string& name) { failing_.insert(name); }
  void repair() { failing_.clear(); }
  void set_room(const ModelRoom& room) { room_ = room; }
  std::vector<std::string> loads() {
    const std::lock_guard lock(mutex_);
    return loads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> names_;
  std::set<std::string> failing_;
  std::vector<std::string> loads_;
  ModelRoom room_;
  bool is_held_ = false;
  bool tells_progress_ = false;
};

class ModelsTest : public ServiceTest {
 protected:
  std::unique_ptr<Service> serve(ModelsOptions options = {}) {
    options.catalog = catalog_;
    return std::move(Service::start(std::move(options), ServiceOptions{})).value();
  }
  static std::shared_ptr<MemoryResponse> chat(Service& service, const std::string& model,
                                              const std::string& text = "Once") {
    Json body = question(text, 4);
    body["model"] = model;
    return post(service, "/v1/chat/completions", body);
  }
  static std::string state_of(Service& service, const std::string& model) {
    return get(service, "/v1/models/" + model)->json()["status"]["value"];
  }
  // Loads and leaves are another thread's: their order is asked for, never a clock.
  static void wait_until(const std::function<bool()>& is_so) {
    while (!is_so()) std::this_thread::yield();
  }

  // A model is in use until its request has gone, which may be after the answer has come.
  static void chat_and_rest(Service& service, const std::string& model) {
    EXPECT_EQ(chat(service, model)->status(), 200);
    wait_until([&] {
      return std::ranges::all_of(service.models().list(), [](const ModelStatus& one) {
        return one.state != ModelState::kLoaded || one.expires.has_value();
      });
    });
  }

  std::shared_ptr<TestCatalog> catalog_ =
      std::make_shared<TestCatalog>(std::set<std::string>{"a", "b", "foreign"});
};

TEST_F(ModelsTest, ARequestLoadsTheModelThatItNames) {
  const auto alone = start();
  const std::string expected = content(*post(*alone, "/v1/chat/completions", question("Once", 4)));
  const auto service = serve();
  EXPECT_EQ(state_of(*service, "a"), "unloaded");
  const auto answer = chat(*service, "a");
  EXPECT_EQ(content(*answer), expected);
  EXPECT_EQ(answer->json()["model"], "a");
  EXPECT_EQ(state_of(*service, "a"), "loaded");
  EXPECT_EQ(state_of(*service, "b"), "unloaded");
  EXPECT_EQ(content(*chat(*service, "B:latest")), expected);
  EXPECT_EQ(catalog_->loads(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(get(*service, "/v1/models")->json()["data"].size(), 3u);
  EXPECT_EQ(get(*service, "/api/ps")->json()["models"].size(), 2u);
  EXPECT_EQ(get(*service, "/api/tags")->json()["models"].size(), 3u);
}

TEST_F(ModelsTest, ANameWithTheHubBeforeItIsTheSameModel) {
  catalog_ = std::make_shared<TestCatalog>(
      std::set<std::string>{"one/m-GGUF:Q4_K_M", "one/other:Q8_0", "two/m-GGUF:Q4_K_M"});
  const auto service = serve();
  EXPECT_EQ(chat(*service, "hf.co/two/m-GGUF:Q4_K_M")->json()["model"], "two/m-GGUF:Q4_K_M");
  EXPECT_EQ(chat(*service, "huggingface.co/one/m-gguf:latest")->json()["model"],
            "one/m-GGUF:Q4_K_M");
  EXPECT_EQ(post(*service, "/api/show", {{"model", "hf.co/one/other"}})->status(), 200);
  EXPECT_EQ(chat(*service, "hf.co/one/absent")->status(), 404);
}

TEST_F(ModelsTest, RequestsWaitWhileAModelLoadsAndNoneIsLost) {
  catalog_->hold(true);
  const auto service = serve();
  std::vector<std::shared_ptr<MemoryResponse>> answers;
  for (int i = 0; i < 6; ++i) answers.push_back(chat(*service, i % 2 == 0 ? "a" : "b"));
  EXPECT_EQ(state_of(*service, "a"), "loading");
  EXPECT_EQ(get(*service, "/health")->status(), 200);
  catalog_->hold(false);
  for (const auto& answer : answers) EXPECT_EQ(answer->status(), 200) << answer->wait();
  EXPECT_EQ(catalog_->loads().size(), 2u);
}

TEST_F(ModelsTest, MoreThanSoManyAreRefusedAndAClientThatLeavesGivesItsPlaceFree) {
  catalog_->hold(true);
  const auto service = serve({.waiting_max = 2});
  const auto first = chat(*service, "a");
  const auto second = chat(*service, "a");
  EXPECT_EQ(chat(*service, "b")->status(), 429);
  first->leave();
  const auto third = chat(*service, "b");
  catalog_->hold(false);
  EXPECT_EQ(second->status(), 200);
  EXPECT_EQ(third->status(), 200);
}

TEST_F(ModelsTest, AModelThatFailsFailsItsRequestsInTheirWords) {
  catalog_->fail("a");
  const auto service = serve();
  const auto openai = chat(*service, "a");
  EXPECT_EQ(openai->status(), 500);
  EXPECT_EQ(openai->json()["error"]["code"], "model_not_loaded");
  EXPECT_EQ(openai->json()["error"]["message"], "a cannot be loaded: model.gguf: no magic");
  const auto ollama = post(*service, "/api/generate", {{"model", "a"}, {"prompt", "x"}});
  EXPECT_EQ(ollama->json()["error"], "a cannot be loaded: model.gguf: no magic");
  Json message = question("x", 2);
  message["model"] = "a";
  EXPECT_EQ(post(*service, "/v1/messages", message)->json()["type"], "error");
  const Json status = get(*service, "/v1/models/a")->json()["status"];
  EXPECT_EQ(status["value"], "unloaded");
  EXPECT_EQ(status["failed"], true);
  EXPECT_EQ(chat(*service, "b")->status(), 200);
  catalog_->repair();
  EXPECT_EQ(chat(*service, "a")->status(), 200);
}

TEST_F(ModelsTest, AnIdleModelLeavesAfterItsTime) {
  const auto service = serve({.keep_alive = KeepAlive(0)});
  EXPECT_EQ(chat(*service, "a")->status(), 200);
  wait_until([&] { return state_of(*service, "a") == "unloaded"; });
  const Json stays = {{"model", "a"}, {"prompt", ""}, {"keep_alive", -1}};
  EXPECT_EQ(post(*service, "/api/generate", stays)->json()["done_reason"], "load");
  EXPECT_EQ(chat(*service, "b")->status(), 200);
  wait_until([&] { return state_of(*service, "b") == "unloaded"; });
  EXPECT_EQ(state_of(*service, "a"), "loaded");
  const Json goes = {{"model", "a"}, {"prompt", ""}, {"keep_alive", 0}};
  EXPECT_EQ(post(*service, "/api/generate", goes)->json()["done_reason"], "unload");
  wait_until([&] { return state_of(*service, "a") == "unloaded"; });
}

TEST_F(ModelsTest, AModelThatIsToLeaveIsNotLoadedFirst) {
  catalog_->fail("a");  // loading it would be an error
  const auto service = serve();
  const Json text = {{"model", "a"}, {"keep_alive", 0}};
  const Json told = post(*service, "/api/generate", text)->json();
  EXPECT_EQ(told["done_reason"], "unload");
  EXPECT_EQ(told["response"], "");
  const Json chat = {{"model", "a"}, {"messages", Json::array()}, {"keep_alive", "0s"}};
  EXPECT_EQ(post(*service, "/api/chat", chat)->json()["done_reason"], "unload");
  const Json asks = {{"model", "a"}, {"prompt", "x"}, {"keep_alive", 0}};
  EXPECT_EQ(post(*service, "/api/generate", asks)->json()["error"],
            "a cannot be loaded: model.gguf: no magic");
}

TEST_F(ModelsTest, TheLeastRecentlyUsedLeavesForAnother) {
  const auto alone = serve();
  EXPECT_EQ(chat(*alone, "a")->status(), 200);
  const uint64_t bytes = alone->models().all_loaded().front()->shrink(0);
  catalog_->set_room({.needed_bytes = bytes, .experts_bytes = 0});
  const auto service = serve({.memory_bytes = 2 * bytes + bytes / 2});
  chat_and_rest(*service, "a");
  chat_and_rest(*service, "b");
  chat_and_rest(*service, "a");
  chat_and_rest(*service, "foreign");
  EXPECT_EQ(state_of(*service, "a"), "loaded");
  EXPECT_EQ(state_of(*service, "b"), "unloaded");
  catalog_->set_room({.needed_bytes = 9 * bytes, .experts_bytes = 0});
  const auto small = serve({.memory_bytes = bytes / 2});
  const auto refused = chat(*small, "a");
  EXPECT_EQ(refused->status(), 503) << refused->wait();
}

TEST_F(ModelsTest, ExpertsCachesShrinkBeforeAModelLeaves) {
  const auto service = serve({.memory_bytes = uint64_t{4} << 30});
  EXPECT_EQ(chat(*service, "a")->status(), 200);
  const auto capacity = [&] {
    for (const ModelLease& model : service->models().all_loaded()) {
      if (model->options().model_name == "a")
        return model->model().counters().expert_capacity_bytes;
    }
    return uint64_t{0};
  };
  const uint64_t before = capacity();
  const std::string expected = content(*chat(*service, "a"));
  const uint64_t bytes = service->models().all_loaded().front()->shrink(0);
  // With the reserve of an eighth, 2 MiB more than there are.
  const uint64_t more = (uint64_t{4} << 30) - bytes + (uint64_t{2} << 20);
  catalog_->set_room({.needed_bytes = more / 8 * 7});
  (void)chat(*service, "b")->status();
  EXPECT_LT(capacity(), before);
  EXPECT_GE(capacity(), before / 4);
  EXPECT_EQ(content(*chat(*service, "a")), expected);
}

TEST_F(ModelsTest, LoadAndUnloadAreLlamaCppsRouters) {
  const auto service = serve();
  EXPECT_EQ(post(*service, "/models/load", {{"model", "b"}})->json()["success"], true);
  wait_until([&] { return state_of(*service, "b") == "loaded"; });
  EXPECT_EQ(post(*service, "/models/unload", {{"model", "b"}})->json()["success"], true);
  wait_until([&] { return state_of(*service, "b") == "unloaded"; });
  EXPECT_EQ(post(*service, "/models/unload", {{"model", "b"}})->status(), 400);
  EXPECT_EQ(post(*service, "/models/load", {{"model", "c"}})->status(), 404);
  EXPECT_EQ(post(*service, "/models/load", Json::object())->status(), 400);
  const auto one = start();
  EXPECT_EQ(post(*one, "/models/load", {{"model", "fable-20m"}})->status(), 200);
  EXPECT_EQ(post(*one, "/models/unload", {{"model", "fable-20m"}})->status(), 400);
}

TEST_F(ModelsTest, ManagingNeedsToBeAllowed) {
  const auto closed = serve();
  const Json model = {{"model", "org/new"}};
  const Json names = {{"source", "a"}, {"destination", "mine"}};
  EXPECT_EQ(post(*closed, "/api/pull", model)->status(), 403);
  EXPECT_EQ(post(*closed, "/api/copy", names)->status(), 403);
  const Request deletion{.method = "DELETE", .path = "/api/delete", .body = R"({"model":"a"})"};
  const auto refused = ask(*closed, deletion);
  EXPECT_EQ(refused->status(), 403);
  EXPECT_NE(refused->wait().find("--manage-models"), std::string::npos);
  EXPECT_EQ(get(*closed, "/v1/models")->json()["data"].size(), 3u);

  const auto service = serve({.may_manage = true});
  const std::string lines = post(*service, "/api/pull", model)->wait();
  EXPECT_NE(lines.find(R"("status":"pulling manifest")"), std::string::npos) << lines;
  EXPECT_NE(lines.find(R"("completed":2)"), std::string::npos) << lines;
  EXPECT_TRUE(lines.ends_with("{\"status\":\"success\"}\n")) << lines;
  EXPECT_EQ(chat(*service, "org/new")->status(), 200);
  const auto bad = post(*service, "/api/pull", {{"model", ".."}, {"stream", false}});
  EXPECT_EQ(bad->status(), 400);
  EXPECT_EQ(post(*service, "/api/copy", names)->status(), 200);
  EXPECT_EQ(content(*chat(*service, "mine")), content(*chat(*service, "a")));
  for (const char* to : {"../x", "/x", "a", "x\ny", ""}) {
    EXPECT_EQ(post(*service, "/api/copy", {{"source", "a"}, {"destination", to}})->status(), 400);
  }
  const auto erase = [&](const std::string& name) {
    return ask(*service,
               {.method = "DELETE", .path = "/api/delete", .body = Json{{"model", name}}.dump()})
        ->status();
  };
  EXPECT_EQ(erase("mine"), 200);
  EXPECT_EQ(chat(*service, "mine")->status(), 404);
  EXPECT_EQ(erase("foreign"), 400);
  EXPECT_EQ(erase("nothing"), 404);
  EXPECT_EQ(erase("a"), 200);
  wait_until([&] { return chat(*service, "a")->status() == 404; });
}

TEST_F(ModelsTest, NamesThatAreNoneAreRefused) {
  const auto service = serve();
  for (const std::string name : {"..", "../a", "/a", "/etc/passwd", "a/..", "c", "a\nb", "\x01"}) {
    EXPECT_EQ(chat(*service, name)->status(), 404) << name;
    EXPECT_EQ(post(*service, "/api/chat", {{"model", name}})->status(), 404) << name;
    EXPECT_EQ(post(*service, "/v1/messages", {{"model", name}})->json()["error"]["type"],
              "not_found_error")
        << name;
  }
  EXPECT_TRUE(catalog_->loads().empty());
  EXPECT_EQ(chat(*service, "org/a")->status(), 200);
}

TEST_F(ModelsTest, AStreamOfAModelThatWasWaitedForIsWhole) {
  catalog_->hold(true);
  const auto service = serve();
  Json body = question("Once", 4);
  body["model"] = "a";
  body["stream"] = true;
  const auto answer = post(*service, "/v1/chat/completions", body);
  catalog_->hold(false);
  EXPECT_GE(answer->frames().size(), 2u);
}

TEST_F(ModelsTest, AStreamThatAsksForProgressTellsOfItsModelsLoad) {
  catalog_->tell_progress();
  const auto service = serve({.keep_alive = KeepAlive(0)});
  Json body = question("Once", 4);
  body.update({{"model", "a"}, {"prompt", "Once"}, {"stream", true}});
  const auto progress = [](const std::string& text) {
    std::vector<double> told;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line == "data: [DONE]") continue;
      const Json frame = Json::parse(line.substr(6));
      if (!frame.contains("model_status")) continue;
      EXPECT_EQ(frame["model"], "a");
      EXPECT_EQ(frame["model_status"]["value"], "loading");
      told.push_back(frame["model_status"]["progress"]);
    }
    return told;
  };
  const std::vector<double> parts = {0.25, 1.0};
  for (const std::string path : {"/v1/chat/completions", "/v1/completions", "/completion"}) {
    body["return_progress"] = true;
    EXPECT_EQ(progress(post(*service, path, body)->wait()), parts) << path;
    wait_until([&] { return state_of(*service, "a") == "unloaded"; });
    body.erase("return_progress");
    EXPECT_TRUE(progress(post(*service, path, body)->wait()).empty()) << path;
    wait_until([&] { return state_of(*service, "a") == "unloaded"; });
  }
}

TEST_F(ModelsTest, OllamasLinesTellOfALoadWhereTheyAreAskedTo) {
  catalog_->tell_progress();
  const auto service = serve();
  Json body = question("Once", 4);
  body.update({{"model", "a"}, {"return_progress", true}});
  const std::string lines = post(*service, "/api/chat", body)->wait();
  const Json first = Json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["model_status"]["progress"], 0.25);
  EXPECT_EQ(first["message"]["content"], "");
  EXPECT_EQ(first["done"], false);
  EXPECT_NE(lines.find("\"done\":true"), std::string::npos) << lines;
}

TEST_F(ModelsTest, AnErrorBeforeTheLoadHasItsStatusAndALaterOneIsAnEvent) {
  catalog_->fail("a");
  const auto service = serve();
  Json body = question("Once", 4);
  body.update({{"model", "a"}, {"stream", true}, {"return_progress", true}});
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->status(), 500);
  catalog_->tell_progress();
  const auto answer = post(*service, "/v1/chat/completions", body);
  EXPECT_EQ(answer->status(), 200);
  const std::string text = answer->wait();
  const size_t last = text.rfind("data: ");
  EXPECT_EQ(Json::parse(text.substr(last + 6))["error"]["code"], "model_not_loaded") << text;
}

TEST_F(ModelsTest, ThoseWhoWaitHearThatTheServerEnds) {
  catalog_->hold(true);
  auto service = serve();
  const auto answer = chat(*service, "a");
  const auto other = chat(*service, "b");
  service->refuse();
  EXPECT_EQ(answer->status(), 503);
  EXPECT_EQ(other->status(), 503);
  service.reset();
}

TEST(KeepAlive, IsReadAsGoDoes) {
  using std::chrono::minutes;
  using std::chrono::seconds;
  EXPECT_EQ(parse_go_time("1h30m"), KeepAlive(minutes(90)));
  EXPECT_EQ(parse_go_time("1.5s"), KeepAlive(std::chrono::milliseconds(1500)));
  EXPECT_EQ(parse_go_time("0"), KeepAlive(0));
  EXPECT_LT(*parse_go_time("-1m"), KeepAlive(0));
  EXPECT_LT(*parse_go_time("99999999999999999h"), KeepAlive(0));
  for (const char* none : {"", "5", "-", ".m", "5 m", "1h5", "5d", "1..5s"}) {
    EXPECT_FALSE(parse_go_time(none)) << none;
  }
  EXPECT_EQ(parse_keep_alive("5"), KeepAlive(seconds(5)));
  EXPECT_LT(*parse_keep_alive("-1"), KeepAlive(0));
  EXPECT_EQ(read_keep_alive(Json(2.5)), KeepAlive(std::chrono::milliseconds(2500)));
  EXPECT_FALSE(read_keep_alive(Json(true)));
}

}  // namespace
}  // namespace moeflux::serve
