// Limits of what a client may leave with the server, and the end of a connection that has no
// further use.
#include <poll.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "serve/http/http_server_test_util.h"

namespace moeflux::serve {
namespace {

using std::chrono::milliseconds;

/// Sends until all is sent or nobody takes more for a while; how much that was.
size_t send_while_taken(int fd, std::string_view bytes) {
  size_t sent = 0;
  pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
  // A client that is slow to take is mistaken for one that has stopped: that counts too little.
  while (sent < bytes.size() && ::poll(&writable, 1, 500) == 1) {
    const ssize_t n = ::send(fd, bytes.data() + sent,
                             std::min(bytes.size() - sent, size_t{1} << 20), MSG_DONTWAIT);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  return sent;
}

// Buffers of the system take some MiB, the server a little: the rest stays with the client.
TEST(HttpServerLimits, OnlyALittleIsReadAheadOfAnAnswer) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/wait"));
  const auto asked = server.next();
  const std::string more(64 << 20, 'x');
  EXPECT_LT(send_while_taken(client.fd(), more), more.size() / 2);
  EXPECT_EQ(server->statistics().connections, 1u);
  asked.response->send(200, {}, "late");
  EXPECT_EQ(client.answer().body, "late");
}

// A peer that still sends would be told of a reset, and could lose the answer by it.
TEST(HttpServerLimits, WhatStillComesAfterTheLastAnswerIsReadAndThrownAway) {
  HttpServerOptions options;
  options.limits.linger_time = std::chrono::hours(1);
  ServerInTest server(options);
  RawClient client = server.client();
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 1000000000\r\n\r\n");
  const Received got = client.answer();
  EXPECT_EQ(got.status, 413);
  EXPECT_EQ(got.header("connection"), "close");
  EXPECT_TRUE(client.ends());
  // More than the system's buffers hold.
  EXPECT_TRUE(client.send(std::string(48 << 20, 'x')));
  EXPECT_EQ(server->statistics().connections, 1u);
  EXPECT_EQ(server->statistics().dropped_answers, 0u);
  client.close();
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 0; }));
}

TEST(HttpServerLimits, EachRequestThatTheHandlerNeverSeesIsReported) {
  std::mutex mutex;
  std::vector<std::string> told;
  HttpServerOptions options;
  options.access.api_keys = {"secret"};
  options.limits.request.body_bytes = 100;
  options.on_own_answer = [&](const Request& request, int status, std::string_view reason) {
    const std::lock_guard lock(mutex);
    told.push_back(
        formatted("{} {} {} {}", request.method, request.path, status, reason.substr(0, 9)));
  };
  const std::string key = "Authorization: Bearer secret\r\n";
  ServerInTest server(options);
  const auto ask = [&](const std::string& request) { return server.client().ask(request).status; };
  EXPECT_EQ(ask(get("/echo", key)), 200);
  EXPECT_EQ(ask(get("/echo")), 401);
  EXPECT_EQ(ask("GET /echo?key=secret HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403);
  EXPECT_EQ(ask("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(ask("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 101\r\n\r\n"), 413);
  EXPECT_EQ(
      ask("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n" + key + "\r\nabc"),
      415);
  EXPECT_EQ(ask("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"), 204);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(told, (std::vector<std::string>{"GET /echo 401 no valid ", "GET /echo 403 Host 'evi",
                                            "  400 not a wel", "POST /echo 413 the body ",
                                            "POST /echo 415 Content-T", "OPTIONS /echo 204 "}));
}

TEST(HttpServerLimits, LingeringHasAnEnd) {
  HttpServerOptions options;
  options.limits.linger_time = milliseconds(20);
  ServerInTest server(options);
  RawClient client = server.client();
  EXPECT_EQ(client.ask(get("/echo", "Connection: close\r\n")).status, 200);
  EXPECT_TRUE(client.ends());
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 0; }));  // nobody has closed
}

}  // namespace
}  // namespace moeflux::serve
