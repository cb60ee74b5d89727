// Clients that leave, and those that only end what they send.
#include <string>

#include "serve/http/http_server_test_util.h"

namespace moeflux::serve {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kInterim = "HTTP/1.1 100 Continue\r\n\r\n";

HttpServerOptions probing_after(milliseconds time) {
  HttpServerOptions options;
  options.limits.probe_time = time;
  return options;
}

/// Never, as long as a test takes.
HttpServerOptions never_probing() { return probing_after(std::chrono::hours(1)); }

TEST(HttpServerLeaving, WhoResetsWhileWaitingOrReadingIsNoticed) {
  ServerInTest server(never_probing());
  for (const bool streaming : {false, true}) {
    for (const bool ends_first : {false, true}) {
      RawClient client = server.client();
      client.send(get("/stream"));
      const auto asked = server.next();
      Event closed;
      asked.response->when_closed([&] { closed.set(); });
      if (streaming) {
        asked.response->begin(200, {});
        asked.response->write("a");
        client.receive_until("1\r\na\r\n");
      }
      if (ends_first) client.finish_sending();
      client.reset();
      EXPECT_TRUE(closed.wait()) << streaming << ends_first;
      EXPECT_TRUE(asked.response->is_closed());
      if (!streaming) asked.response->begin(200, {});
      asked.response->write("b");
      asked.response->end();
      EXPECT_EQ(asked.response->unsent_bytes(), 0u);
      Event again;
      asked.response->when_closed([&] { again.set(); });
      EXPECT_TRUE(again.is_set());
    }
  }
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 0; }));
  EXPECT_EQ(server->statistics().dropped_answers, 4u);
}

TEST(HttpServerLeaving, WhoClosesIsNoticedBeforeAWholeAnswerAndInASilentStream) {
  ServerInTest server(probing_after(milliseconds(20)));
  for (const bool streaming : {false, true}) {
    RawClient client = server.client();
    client.send(get("/stream"));
    const auto asked = server.next();
    Event closed;
    asked.response->when_closed([&] { closed.set(); });
    if (streaming) {
      asked.response->begin(200, {});
      asked.response->keep_alive(": alive\n\n", std::chrono::hours(1));
      client.receive_until("\r\n\r\n");
    }
    client.close();
    EXPECT_TRUE(closed.wait()) << streaming;
  }
  EXPECT_EQ(server->statistics().dropped_answers, 2u);
}

TEST(HttpServerLeaving, WhoClosesIsNoticedByWhatIsWritten) {
  ServerInTest server(never_probing());
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  asked.response->begin(200, {});
  client.receive_until("\r\n\r\n");
  client.close();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!asked.response->is_closed() && std::chrono::steady_clock::now() < end) {
    asked.response->write("token");
    ::usleep(1000);
  }
  EXPECT_TRUE(asked.response->is_closed());
}

TEST(HttpServerLeaving, WhoClosesASocketOfAPathIsNoticedAtOnce) {
  HttpServerOptions options = never_probing();
  options.unix_socket = ::testing::TempDir() + "leaving" + std::to_string(::getpid());
  ServerInTest server(options);
  RawClient client(options.unix_socket);
  client.send(get("/stream"));
  const auto asked = server.next();
  Event closed;
  asked.response->when_closed([&] { closed.set(); });
  client.close();
  EXPECT_TRUE(closed.wait());
  RawClient half(options.unix_socket);
  half.send(get("/echo"));
  half.finish_sending();
  EXPECT_EQ(half.answer().body, "GET /echo?||");
}

TEST(HttpServerLeaving, WhoOnlyEndsWhatItSendsGetsItsAnswer) {
  ServerInTest server(never_probing());
  for (const bool streaming : {false, true}) {
    for (const std::string_view version : {"1.1", "1.0"}) {
      RawClient client = server.client();
      std::string request = get("/stream");
      request.replace(request.find("1.1"), 3, version);
      client.send(request);
      client.finish_sending();
      const auto asked = server.next();
      ::usleep(20'000);  // the end of input is read
      EXPECT_FALSE(asked.response->is_closed());
      if (streaming) {
        asked.response->begin(200, {});
        asked.response->write("to");
        asked.response->write("ken");
        asked.response->end();
      } else {
        asked.response->send(200, {}, "token");
      }
      const Received got = client.answer();
      EXPECT_EQ(got.status, 200);
      EXPECT_EQ(got.body, "token");
      EXPECT_TRUE(got.whole);
      EXPECT_EQ(got.header("connection"), "close");
      EXPECT_TRUE(client.ends());
    }
  }
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 0; }));
  EXPECT_EQ(server->statistics().dropped_answers, 0u);
}

TEST(HttpServerLeaving, WhoEndsSendingBehindSeveralRequestsGetsAllAnswers) {
  ServerInTest server(never_probing());
  RawClient client = server.client();
  client.send(get("/wait") + post("/echo", "{}") + get("/echo?last") + "GET /echo?cut HT");
  client.finish_sending();
  const auto asked = server.next();
  ::usleep(20'000);
  asked.response->send(200, {}, "first");
  EXPECT_EQ(client.answer().body, "first");
  EXPECT_EQ(client.answer().body, "POST /echo?||{}");
  EXPECT_EQ(client.answer().body, "GET /echo?last||");
  EXPECT_TRUE(client.ends());
  EXPECT_EQ(server->statistics().dropped_answers, 0u);
}

TEST(HttpServerLeaving, WhoWaitsLongIsAskedByInterimAnswersAFewTimes) {
  ServerInTest server(probing_after(milliseconds(1)));
  RawClient client = server.client();
  client.send(get("/wait"));
  client.finish_sending();
  const auto asked = server.next();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(client.receive_until("\r\n\r\n"), kInterim);
  ::usleep(50'000);
  asked.response->send(200, {}, "late");
  EXPECT_EQ(client.answer().body, "late");
  EXPECT_TRUE(client.ends());
}

TEST(HttpServerLeaving, NoInterimAnswerGoesToHttp10OrToWhoMaySend) {
  ServerInTest server(probing_after(milliseconds(1)));
  RawClient old = server.client();
  old.send("GET /wait HTTP/1.0\r\n\r\n");
  old.finish_sending();
  const auto asked_old = server.next();
  RawClient open = server.client();
  open.send(get("/wait"));
  const auto asked_open = server.next();
  ::usleep(50'000);
  asked_old.response->send(200, {}, "old");
  asked_open.response->send(200, {}, "open");
  EXPECT_TRUE(old.receive_until("old").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(open.receive_until("open").starts_with("HTTP/1.1 200"));
}

TEST(HttpServerLeaving, WhoEndsSendingAndLeavesLaterIsNoticed) {
  ServerInTest server(probing_after(milliseconds(10)));
  for (const bool reads_interim : {false, true}) {
    RawClient client = server.client();
    client.send(get("/wait"));
    client.finish_sending();
    const auto asked = server.next();
    Event closed;
    asked.response->when_closed([&] { closed.set(); });
    ::usleep(20'000);
    if (reads_interim) {
      EXPECT_EQ(client.receive_until("\r\n\r\n"), kInterim);
    }
    client.close();
    EXPECT_TRUE(closed.wait()) << reads_interim;
  }
}

TEST(HttpServerLeaving, ARequestThatEndsTooEarlyIsNoneAtAll) {
  ServerInTest server;
  const std::string request = post("/echo", "{}");
  for (size_t bytes = 1; bytes < request.size(); ++bytes) {
    RawClient client = server.client();
    client.send(std::string_view(request).substr(0, bytes));
    client.finish_sending();
    EXPECT_TRUE(client.ends()) << bytes;
  }
  EXPECT_EQ(server->statistics().answers.count(200), 0u);
}

}  // namespace
}  // namespace moeflux::serve
