// Answers that take their time: streams, peers that go, readers that do not read, the server's end.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "serve/http/http_server_test_util.h"

namespace moeflux::serve {
namespace {

using std::chrono::milliseconds;

TEST(HttpServerStream, StreamsInChunks) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  asked.response->begin(200, {{"Content-Type", "text/event-stream"}});
  EXPECT_NE(client.receive_until("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  asked.response->write("data: 1\n\n");
  EXPECT_EQ(client.receive_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  asked.response->write("");  // an empty chunk would end the body
  asked.response->write("data: 2\n\n");
  asked.response->end();
  EXPECT_EQ(client.receive_until("0\r\n\r\n"), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(client.ask(get("/echo")).status, 200);
  EXPECT_FALSE(asked.response->is_closed());
}

TEST(HttpServerStream, ManyPiecesArriveWholeAndInOrder) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  std::string all;
  asked.response->begin(200, {});
  for (int i = 0; i < 20'000; ++i) {
    asked.response->write(std::to_string(i) + ",");
    all += std::to_string(i) + ",";
  }
  asked.response->end();
  const Received got = client.answer();
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.body, all);
}

TEST(HttpServerStream, RequestsThatComeInAStreamWait) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  asked.response->begin(200, {});
  asked.response->write("a");
  client.receive_until("1\r\na\r\n");
  // More than is read ahead, so that part of it waits with the client.
  const std::string body(300'000, ' ');
  std::thread sender([&] { client.send(post("/echo", body) + get("/echo?last")); });
  ::usleep(20'000);
  asked.response->write("b");
  asked.response->end();
  EXPECT_EQ(client.receive_until("0\r\n\r\n"), "1\r\nb\r\n0\r\n\r\n");
  EXPECT_EQ(client.answer().body, "POST /echo?||" + body);
  EXPECT_EQ(client.answer().body, "GET /echo?last||");
  sender.join();
}

TEST(HttpServerStream, SilenceIsBroken) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  asked.response->begin(200, {});
  asked.response->keep_alive(": alive\n\n", milliseconds(20));
  client.receive_until("\r\n\r\n");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.receive_until("\n\n\r\n"), "9\r\n: alive\n\n\r\n");
  }
  asked.response->write("last");
  asked.response->end();
  const std::string rest = client.receive_until("0\r\n\r\n");
  EXPECT_TRUE(rest.ends_with("last\r\n0\r\n\r\n")) << rest;
  ::usleep(50'000);
  EXPECT_EQ(client.ask(get("/echo")).status, 200);  // and no comment before it
}

TEST(HttpServerStream, ASlowReaderIsSeenAndDrained) {
  ServerInTest server;
  RawClient client = server.client(4096);
  client.send(get("/stream"));
  const auto asked = server.next();
  asked.response->begin(200, {});
  Event at_once;
  asked.response->when_drained(1 << 20, [&] { at_once.set(); });
  EXPECT_TRUE(at_once.wait());
  // More than the kernel keeps for it: 4 MiB here and what the window of the reader takes.
  const std::string bytes(32 << 20, 'x');
  asked.response->write(bytes);
  Event drained;
  asked.response->when_drained(1000, [&] { drained.set(); });
  EXPECT_GT(asked.response->unsent_bytes(), 1u << 20);
  EXPECT_FALSE(drained.is_set());
  asked.response->end();
  const Received got = client.answer();
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.body.size(), bytes.size());
  EXPECT_TRUE(drained.wait());
  EXPECT_TRUE(server.soon([](const auto& s) { return s.answers.count(200) > 0; }));
  EXPECT_EQ(asked.response->unsent_bytes(), 0u);
}

/// Writes whenever little is unsent, as whoever generates text should.
struct PatientGiver : std::enable_shared_from_this<PatientGiver> {
  static constexpr size_t kPiece = 64 << 10;
  void give() {
    while (left > 0 && response->unsent_bytes() < kPiece) {
      response->write(std::string(kPiece, 'x'));
      --left;
      most = std::max(most, response->unsent_bytes());
    }
    if (left > 0) {
      return response->when_drained(kPiece / 2, [self = shared_from_this()] { self->give(); });
    }
    response->end();
    done.set();
  }
  std::shared_ptr<Response> response;
  int left = 512;
  size_t most = 0;
  Event done;
};

TEST(HttpServerStream, WhoWaitsForASlowReaderHoldsLittle) {
  ServerInTest server;
  RawClient client = server.client(4096);
  client.send(get("/stream"));
  const auto giver = std::make_shared<PatientGiver>();
  giver->response = server.next().response;
  giver->response->begin(200, {});
  giver->give();
  EXPECT_FALSE(giver->done.is_set());  // the kernel takes a few of the 32 MiB
  const Received got = client.answer();
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(got.body.size(), 512 * PatientGiver::kPiece);
  ASSERT_TRUE(giver->done.wait());
  EXPECT_LE(giver->most, 2 * PatientGiver::kPiece + 1024);  // and heads of chunks
}

TEST(HttpServerStream, AReaderThatTakesNothingIsDropped) {
  HttpServerOptions options;
  options.limits.write_time = milliseconds(100);
  ServerInTest server(options);
  RawClient client = server.client(4096);
  client.send(get("/stream"));
  const auto asked = server.next();
  Event closed;
  Event drained;
  asked.response->when_closed([&] { closed.set(); });
  asked.response->begin(200, {});
  asked.response->keep_alive(": alive\n\n", milliseconds(10));
  asked.response->write(std::string(32 << 20, 'x'));
  asked.response->when_drained(0, [&] { drained.set(); });
  EXPECT_TRUE(closed.wait());
  EXPECT_TRUE(drained.wait());
  EXPECT_EQ(asked.response->unsent_bytes(), 0u);
  EXPECT_FALSE(client.answer().whole);
}

TEST(HttpServerStream, AnAnswerThatIsGivenUpIsNoAnswer) {
  ServerInTest server;
  RawClient unanswered = server.client();
  unanswered.send(get("/wait"));
  server.next();
  const Received got = unanswered.answer();
  EXPECT_EQ(got.status, 500);
  EXPECT_EQ(got.header("connection"), "close");
  EXPECT_TRUE(unanswered.ends());

  RawClient cut = server.client();
  cut.send(get("/stream"));
  {
    const auto asked = server.next();
    asked.response->begin(200, {});
    asked.response->write("a");
  }
  const Received part = cut.answer();
  EXPECT_EQ(part.body, "a");
  EXPECT_FALSE(part.whole);
}

TEST(HttpServerStream, OutlivesTwoHundredStreamsHalfOfThemDropped) {
  ServerInTest server;
  std::vector<RawClient> clients;
  std::vector<ServerInTest::Asked> asked;
  std::atomic<int> closed = 0;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(server.client());
    clients.back().send(get("/stream?" + std::to_string(i)));
    asked.push_back(server.next());
    asked.back().response->when_closed([&] { ++closed; });
    asked.back().response->begin(200, {});
    EXPECT_TRUE(clients.back().receive_until("\r\n\r\n").starts_with("HTTP/1.1 200 "));
  }
  EXPECT_EQ(server->statistics().connections, 200u);
  std::atomic<bool> all_dropped = false;
  std::thread giver([&] {
    for (int round = 0; round < 1000 && !all_dropped; ++round) {
      for (const auto& each : asked) each.response->write("more,");
    }
  });
  for (int i = 0; i < 200; i += 2) i % 4 == 0 ? clients[i].reset() : clients[i].close();
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 100; }));
  all_dropped = true;
  giver.join();
  EXPECT_EQ(closed, 100);
  for (const auto& each : asked) {
    each.response->write(each.request.query);
    each.response->end();
  }
  for (int i = 1; i < 200; i += 2) {
    const Received got = clients[i].chunks();
    EXPECT_TRUE(got.whole);
    EXPECT_EQ(got.body.substr(got.body.rfind(',') + 1), std::to_string(i));
  }
  EXPECT_EQ(closed, 100);
  EXPECT_EQ(server->statistics().dropped_answers, 100u);
  clients.clear();
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 0; }));
}

TEST(HttpServerStream, DropsAtEveryByteOfARequestLeaveNothing) {
  ServerInTest server;
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
  for (size_t bytes = 0; bytes <= request.size(); ++bytes) {
    RawClient client = server.client();
    client.send(std::string_view(request).substr(0, bytes));
    if (bytes % 2 == 0) client.reset();
  }
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 0; }));
  EXPECT_EQ(server.client().ask(request).body, "POST /echo?||{}");
}

TEST(HttpServerStream, RequestsMayArriveByteByByte) {
  ServerInTest server;
  RawClient client = server.client();
  for (const char byte : "\r\n\r\n" + post("/echo", "{}") + get("/echo?2")) {
    client.send({&byte, 1});
  }
  EXPECT_EQ(client.answer().body, "POST /echo?||{}");
  EXPECT_EQ(client.answer().body, "GET /echo?2||");
}

TEST(HttpServerStream, StopLetsAnswersEnd) {
  ServerInTest server;
  RawClient idle = server.client();
  EXPECT_EQ(idle.ask(get("/echo")).status, 200);
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  std::thread stopper([&] { server->stop(std::chrono::seconds(60)); });
  EXPECT_TRUE(idle.ends());
  EXPECT_FALSE(asked.response->is_closed());
  EXPECT_FALSE(RawClient(server->port()).connected());
  asked.response->begin(200, {});
  asked.response->write("a");
  asked.response->end();
  const Received got = client.answer();
  EXPECT_EQ(got.body, "a");
  EXPECT_EQ(got.header("connection"), "close");
  EXPECT_TRUE(client.ends());
  client.close();
  stopper.join();
  EXPECT_EQ(server->statistics().connections, 0u);
}

TEST(HttpServerStream, StopClosesWhatOutlastsItsGrace) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/stream"));
  const auto asked = server.next();
  Event closed;
  asked.response->when_closed([&] { closed.set(); });
  asked.response->begin(200, {});
  server->stop(milliseconds(10));
  EXPECT_TRUE(closed.is_set());
  EXPECT_FALSE(client.answer().whole);
  server->stop(milliseconds(10));  // once more is nothing
}

TEST(HttpServerStream, ItsEndIsTheEndOfAllStreams) {
  ServerInTest server;
  std::vector<RawClient> clients;
  std::vector<ServerInTest::Asked> asked;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(server.client());
    clients.back().send(get("/stream"));
    asked.push_back(server.next());
    asked.back().response->begin(200, {});
  }
  // Givers go on while the server goes.
  std::atomic<bool> stop = false;
  std::thread giver([&] {
    while (!stop) {
      for (const auto& each : asked) each.response->write("more");
    }
  });
  server.destroy();
  for (const auto& each : asked) EXPECT_TRUE(each.response->is_closed());
  stop = true;
  giver.join();
  Event drained;
  asked[0].response->when_drained(0, [&] { drained.set(); });
  EXPECT_TRUE(drained.is_set());
}

/// Tells when the thread that made it has ended.
struct ThreadMark {
  explicit ThreadMark(std::shared_ptr<std::atomic<int>> of) : ended(std::move(of)) {}
  ~ThreadMark() { ++*ended; }
  std::shared_ptr<std::atomic<int>> ended;
};

TEST(HttpServerStream, ItsThreadsEndWithIt) {
  const auto ended = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> handled = 0;
  Event both;
  Event looped;
  auto server = HttpServer::start({.port = 0}, [&](Request, std::shared_ptr<Response> response) {
    thread_local const ThreadMark mark(ended);
    // Both threads that call handlers are here at once.
    if (++handled == 2) both.set();
    EXPECT_TRUE(both.wait());
    response->when_drained(1, [&] {
      thread_local const ThreadMark of_loop(ended);
      looped.set();
    });
    response->send(200, {}, "");
  });
  ASSERT_TRUE(server.ok());
  RawClient first((*server)->port());
  RawClient second((*server)->port());
  first.send(get("/"));
  second.send(get("/"));
  EXPECT_EQ(first.answer().status, 200);
  EXPECT_EQ(second.answer().status, 200);
  EXPECT_TRUE(looped.wait());
  EXPECT_EQ(*ended, 0);
  server->reset();
  EXPECT_EQ(*ended, 3);
}

}  // namespace
}  // namespace moeflux::serve
