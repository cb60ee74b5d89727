// Waits between requests: long ones wait for each other, short ones never for them, and those
// answered at once for none; and how a server ends while some of them are at work.
#include <atomic>
#include <thread>
#include <vector>

#include "serve/http/http_server_test_util.h"

namespace moeflux::serve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// "/block" holds its thread until the test ends; all else is answered.
class BlockedServer {
 public:
  explicit BlockedServer(HttpLimits limits = {}) {
    HttpServerOptions options{.port = 0, .access = {}, .limits = limits};
    options.is_at_once = [](const Request& request) { return request.path == "/health"; };
    auto server = HttpServer::start(std::move(options), [this](Request request, auto response) {
      if (request.path == "/block") {
        ++blocked_;
        open_.wait();
      }
      response->send(200, {}, request.path);
    });
    MF_CHECK(server.ok());
    server_ = std::move(*server);
  }
  ~BlockedServer() {
    open_.set();
    server_.reset();
  }
  BlockedServer(const BlockedServer&) = delete;
  BlockedServer& operator=(const BlockedServer&) = delete;

  HttpServer* operator->() { return server_.get(); }
  RawClient client() { return RawClient(server_->port()); }
  /// Clients whose requests hold `threads` threads, and more that wait behind them.
  std::vector<RawClient> block(size_t body_bytes, int threads) {
    const int before = blocked_;
    std::vector<RawClient> clients;
    for (int i = 0; i < 3 * threads; ++i) {
      clients.push_back(client());
      clients.back().send(post("/block", std::string(body_bytes, ' ')));
    }
    while (blocked_ < before + threads) ::usleep(1000);
    return clients;
  }
  void open() { open_.set(); }

 private:
  Event open_;
  std::atomic<int> blocked_ = 0;
  std::unique_ptr<HttpServer> server_;
};

constexpr size_t kLong = kShortBodyBytes + 1;

TEST(HttpServerLanes, HealthWaitsForNobody) {
  BlockedServer server;
  const auto short_ones = server.block(10, 2);
  const auto long_ones = server.block(kLong, 2);
  const Received told = server.client().ask(get("/health"));
  EXPECT_EQ(told.body, "/health") << told.status;
  EXPECT_TRUE(server->is_handling());
}

TEST(HttpServerLanes, AShortRequestDoesNotWaitForLongOnes) {
  BlockedServer server;
  auto long_ones = server.block(kLong, 2);
  EXPECT_EQ(server.client().ask(post("/echo", "{}")).body, "/echo");
  server.open();
  for (RawClient& one : long_ones) {
    const Received told = one.answer();
    EXPECT_EQ(told.body, "/block") << told.status;
  }
}

TEST(HttpServerLanes, BodiesTogetherHaveALimit) {
  constexpr size_t kBytes = 80'000;
  BlockedServer server({.bodies_bytes = kBytes + kBytes / 2});
  auto blocked = server.block(kBytes, 1);
  // The requests behind the first found no room, whichever was the first.
  const Received told = server.client().ask(post("/echo", std::string(kBytes, ' ')));
  EXPECT_EQ(told.status, 503);
  EXPECT_EQ(told.header("retry-after"), "1");
  EXPECT_EQ(server.client().ask(post("/echo", "{}")).body, "/echo") << "a small one has room";
  server.open();
  // The room is given back when the handler returns, which a client cannot see.
  Received late;
  for (int i = 0; i < 2000 && late.status != 200; ++i) {
    late = server.client().ask(post("/echo", std::string(kBytes, ' ')));
  }
  EXPECT_EQ(late.body, "/echo");
}

TEST(HttpServerLanes, WhoComesWhileItDrainsIsStillAnswered) {
  BlockedServer server;
  RawClient idle = server.client();
  EXPECT_EQ(idle.ask(get("/echo")).status, 200);
  server->drain();
  EXPECT_TRUE(idle.ends());
  const Received late = server.client().ask(get("/health"));
  EXPECT_EQ(late.body, "/health");
  EXPECT_EQ(late.header("connection"), "close");
}

TEST(HttpServerLanes, AnEndDoesNotWaitForWhatIsStillPrepared) {
  BlockedServer server;
  auto long_ones = server.block(kLong, 2);
  server->drain();
  const auto begin = std::chrono::steady_clock::now();
  server->wait_for_answers(seconds(600), milliseconds(10));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(300));
  server->stop(milliseconds(0));
  EXPECT_EQ(server->statistics().connections, 0u);
  EXPECT_FALSE(long_ones[0].answer().whole);
}

TEST(HttpServerLanes, AnEndWaitsForAnswersThatHaveBegun) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  asked.response->begin(200, {});
  asked.response->write("a");
  client.receive_until("1\r\na\r\n");
  server->drain();
  std::atomic<bool> is_over = false;
  std::thread waiter([&] {
    server->wait_for_answers(seconds(600), milliseconds(0));
    is_over = true;
  });
  ::usleep(50'000);
  EXPECT_FALSE(is_over);
  asked.response->write("b");
  asked.response->end();
  EXPECT_EQ(client.chunks().body, "b");
  client.close();
  waiter.join();
}

}  // namespace
}  // namespace moeflux::serve
