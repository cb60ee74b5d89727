#include "serve/http/http_server.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <vector>

#include "serve/http/http_server_test_util.h"

namespace moeflux::serve {
namespace {

using std::chrono::milliseconds;

/// The status of the answer to these bytes on a connection of their own.
int status_of(ServerInTest& server, std::string_view bytes) {
  RawClient client = server.client();
  client.send(bytes);
  return client.answer().status;
}

TEST(HttpServer, AnswersManyRequestsOfAConnection) {
  ServerInTest server;
  RawClient client = server.client();
  for (int i = 0; i < 3; ++i) {
    const Received got = client.ask(post("/echo?a=%20", "{}"));
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.body, "POST /echo?a=%20||{}");
    EXPECT_EQ(got.header("server"), "moeflux");
    EXPECT_EQ(got.header("connection"), "");
  }
  EXPECT_EQ(server->statistics().accepted, 1u);
  EXPECT_TRUE(server.soon([](const auto& s) {
    return s.answers == std::map<int, uint64_t>{{200, 3}};
  }));
}

TEST(HttpServer, EveryAnswerHasAnIdTheClientsIfItIsPlain) {
  ServerInTest server;
  RawClient client = server.client();
  Received got = client.ask(get("/echo", "X-Request-Id: abc-1.2\r\n"));
  EXPECT_EQ(got.header("x-request-id"), "abc-1.2");
  EXPECT_EQ(got.header("request-id"), "abc-1.2");
  const std::string first = client.ask(get("/echo")).header("x-request-id");
  const std::string second =
      client.ask(get("/echo", "X-Request-Id: " + std::string(129, 'a') + "\r\n"))
          .header("x-request-id");
  EXPECT_TRUE(first.starts_with("req_")) << first;
  EXPECT_TRUE(second.starts_with("req_")) << second;
  EXPECT_NE(first, second);
  got = client.ask(get("/echo", "X-Request-Id: mine\r\nHost: localhost\r\n"));
  EXPECT_EQ(got.status, 400);
  EXPECT_EQ(got.header("x-request-id"), "mine");
}

TEST(HttpServer, TheHandlerSeesTheIdThatTheClientSees) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/wait"));
  const auto asked = server.next();
  const std::string id(header(asked.request, "x-request-id"));
  asked.response->send(200, {{"X-Request-Id", "other"}, {"Content-Length", "9"}}, "a");
  const Received got = client.answer();
  EXPECT_EQ(got.header("x-request-id"), id);
  EXPECT_EQ(got.body, "a");
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  ServerInTest server;
  RawClient client = server.client();
  client.send(get("/wait") + post("/echo", "1") + get("/echo?2") +
              get("/echo?3", "Connection: close\r\n"));
  const auto asked = server.next();
  asked.response->send(200, {}, "0");
  EXPECT_EQ(client.answer().body, "0");
  EXPECT_EQ(client.answer().body, "POST /echo?||1");
  EXPECT_EQ(client.answer().body, "GET /echo?2||");
  const Received last = client.answer();
  EXPECT_EQ(last.body, "GET /echo?3||");
  EXPECT_EQ(last.header("connection"), "close");
  EXPECT_TRUE(client.ends());
}

TEST(HttpServer, HeadSaysWhatGetWouldAndSendsNoBody) {
  ServerInTest server;
  RawClient client = server.client();
  client.send("HEAD /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Received got = client.answer(true);
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.header("content-length"), std::to_string(std::string("GET /echo?||").size()));
  EXPECT_EQ(client.ask(get("/echo")).body, "GET /echo?||");  // not a byte between them
}

TEST(HttpServer, HeadOfAStreamEndsWithItsHead) {
  ServerInTest server;
  RawClient client = server.client();
  client.send("HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto asked = server.next();
  EXPECT_EQ(asked.request.method, "GET");
  Event closed;
  asked.response->when_closed([&] { closed.set(); });
  asked.response->begin(200, {});
  EXPECT_TRUE(closed.wait());
  asked.response->write("nobody reads this");
  EXPECT_EQ(client.answer(true).status, 200);
  EXPECT_EQ(client.ask(get("/echo")).body, "GET /echo?||");
}

TEST(HttpServer, OptionsSayWhatIsAllowed) {
  HttpServerOptions options;
  options.access.api_keys = {"secret"};
  options.access.allowed_origins = {"https://chat.example"};
  ServerInTest server(options);
  RawClient client = server.client();
  Received got = client.ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(got.status, 204);
  EXPECT_EQ(got.header("allow"), "GET, HEAD, POST, DELETE, OPTIONS");
  EXPECT_EQ(got.header("access-control-allow-origin"), "");
  EXPECT_EQ(got.header("content-length"), "");
  got = client.ask(
      "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://chat.example\r\n"
      "Access-Control-Request-Headers: authorization\r\n\r\n");
  EXPECT_EQ(got.header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(got.header("access-control-allow-headers"), "authorization");
  EXPECT_EQ(std::ranges::count_if(got.headers, [](const auto& one) { return one.first == "vary"; }),
            1);
}

TEST(HttpServer, ContinueIsSaidBeforeABodyThatIsWanted) {
  HttpServerOptions options;
  options.limits.request.body_bytes = 10;
  ServerInTest server(options);
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: ";
  RawClient client = server.client();
  EXPECT_EQ(client.ask(head + "2\r\n\r\n").status, 100);
  EXPECT_EQ(client.ask("{}").body, "POST /echo?||{}");
  EXPECT_EQ(status_of(server, head + "11\r\n\r\n"), 413);
  EXPECT_EQ(status_of(server,
                      "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: "
                      "100-continue\r\nContent-Length: 2\r\n\r\n"),
            415);
  EXPECT_EQ(status_of(server, get("/echo", "Expect: tea\r\n")), 417);
}

TEST(HttpServer, RefusesWhatIsMalformed) {
  ServerInTest server;
  const std::string host = "Host: localhost\r\n";
  const std::string json = "POST /echo HTTP/1.1\r\n" + host + "Content-Type: application/json\r\n";
  const std::string chunked = json + "Transfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::string> requests = {
      "hello\r\n\r\n",
      "GET  /echo HTTP/1.1\r\n" + host + "\r\n",
      "GET /echo HTTP/2.0\r\n" + host + "\r\n",
      "GET /echo\r\n\r\n",
      "GET echo HTTP/1.1\r\n" + host + "\r\n",
      "GET /%zz HTTP/1.1\r\n" + host + "\r\n",
      "GET /%ff HTTP/1.1\r\n" + host + "\r\n",
      "GET /%00 HTTP/1.1\r\n" + host + "\r\n",
      "CONNECT localhost:1 HTTP/1.1\r\n" + host + "\r\n",
      "GET /echo HTTP/1.1\r\n\r\n",
      "GET /echo HTTP/1.1\r\nHost:\r\n\r\n",
      get("/echo", host),
      get("/echo", "Bad Name: 1\r\n"),
      get("/echo", "X-Test : 1\r\n"),
      get("/echo", std::string_view("X-Test: a\0b\r\n", 13)),
      get("/echo", std::string_view("X-\0Test: a\r\n", 12)),
      get("/echo", "X-Test: a\x01\r\n"),
      json + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      json + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
      json + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      json + "Transfer-Encoding: gzip\r\n\r\n",
      json + "Content-Length: -2\r\n\r\n{}",
      json + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
      json + "Content-Length: 99999999999999999999999\r\n\r\n{}",
      chunked + "-1\r\n{}\r\n0\r\n\r\n",
      chunked + "zz\r\n",
      chunked + "\r\n",
      chunked + "2\r\n{}XX0\r\n\r\n",
      chunked + "ffffffffffffffffff\r\n{}",
      "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  };
  for (const std::string& request : requests) {
    EXPECT_EQ(status_of(server, request), 400) << request;
  }
  EXPECT_EQ(status_of(server, get("/echo")), 200);
}

TEST(HttpServer, TransportErrorsHaveTheBodyOfOpenAi) {
  ServerInTest server;
  RawClient client = server.client();
  const Received got = client.ask("GET x HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(got.header("content-type"), "application/json");
  EXPECT_EQ(got.header("connection"), "close");
  EXPECT_EQ(
      got.body,
      "{\"error\":{\"message\":\"the target is not a path, or not UTF-8 once its percent "
      "signs are decoded\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
  EXPECT_TRUE(client.ends());
}

TEST(HttpServer, BytesAboveAsciiInHeadersAreTheHandlersToJudge) {
  ServerInTest server;
  RawClient client = server.client();
  EXPECT_EQ(client.ask(get("/echo", "X-Test: \xff\xc3\r\n")).body, "GET /echo?|\xff\xc3|");
}

TEST(HttpServer, TakesChunkedBodies) {
  ServerInTest server;
  RawClient client = server.client();
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: Chunked\r\n\r\n";
  EXPECT_EQ(client.ask(head + "1\r\n{\r\n00A;x=\"y\"\r\n0123456789\r\n1\r\n}\r\n0\r\n\r\n").body,
            "POST /echo?||{0123456789}");
  // A trailer comes after everybody has looked at the headers.
  EXPECT_EQ(client.ask(head + "0\r\nHost: evil\r\nX-Test: late\r\n\r\n").body, "POST /echo?||");
}

TEST(HttpServer, HeadersHaveALimit) {
  ServerInTest server;
  const std::string large(33 * 1024, 'a');
  EXPECT_EQ(status_of(server, get("/echo", "X-Test: " + large + "\r\n")), 431);
  EXPECT_EQ(status_of(server, get("/" + large)), 431);
  std::string many;
  for (int i = 0; i < 99; ++i) many += "X-Other: 1\r\n";
  EXPECT_EQ(status_of(server, get("/echo", many)), 200);
  EXPECT_EQ(status_of(server, get("/echo", many + "X-Other: 1\r\n")), 431);
  const std::string trailers =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n0\r\n" +
      large;
  EXPECT_EQ(status_of(server, trailers), 431);
}

TEST(HttpServer, ABodyThatIsTooLargeIsRefusedByItsLength) {
  ServerInTest server;
  RawClient client = server.client();
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  // Not one byte of the body is needed for that.
  EXPECT_EQ(client.ask(head + "Content-Length: 34603008\r\n\r\n").status, 413);
  // A client that sends it all first hears the same.
  RawClient eager = server.client();
  eager.send(head + "Content-Length: 34603008\r\n\r\n");
  const std::string part(1 << 20, ' ');
  for (int i = 0; i < 33; ++i) eager.send(part);
  EXPECT_EQ(eager.answer().status, 413);
  EXPECT_EQ(status_of(server, head + "Transfer-Encoding: chunked\r\n\r\n2100000\r\n"), 413);
}

TEST(HttpServer, BodiesUpToTheLimitAreTaken) {
  ServerInTest server;
  RawClient client = server.client();
  std::string body(32 << 20, ' ');
  body.front() = '1';
  const Received got = client.ask(post("/echo", body));
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "POST /echo?||" + body);
}

TEST(HttpServer, HostAndOriginOfOthersAreRefused) {
  ServerInTest server;
  const auto with = [&](std::string_view host, std::string_view more = {}) {
    return status_of(server, "GET /echo HTTP/1.1\r\nHost: " + std::string(host) + "\r\n" +
                                 std::string(more) + "\r\n");
  };
  EXPECT_EQ(with("127.0.0.1:8080"), 200);
  EXPECT_EQ(with("[::1]:8080"), 200);
  EXPECT_EQ(with("evil.example"), 403);
  EXPECT_EQ(with("localhost.evil.example"), 403);
  EXPECT_EQ(with("localhost", "Origin: http://localhost\r\n"), 200);
  EXPECT_EQ(with("localhost", "Origin: http://evil.example\r\n"), 403);
  EXPECT_EQ(with("localhost", "Origin: null\r\n"), 403);
  EXPECT_EQ(status_of(server, "GET http://evil.example/echo HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            403);
  EXPECT_EQ(status_of(server, "GET http://localhost/echo HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
            200);
}

TEST(HttpServer, AKeyIsNeededForAllButHealth) {
  HttpServerOptions options;
  options.access.api_keys = {"secret", "other"};
  ServerInTest server(options);
  EXPECT_EQ(status_of(server, get("/health")), 200);
  EXPECT_EQ(status_of(server, get("/echo")), 401);
  EXPECT_EQ(status_of(server, get("/echo", "Authorization: Bearer secrex\r\n")), 401);
  EXPECT_EQ(status_of(server, get("/echo", "Authorization: bearer other\r\n")), 200);
  RawClient client = server.client();
  EXPECT_EQ(client.ask(get("/echo", "X-Api-Key: \r\n")).header("www-authenticate"), "Bearer");
  EXPECT_EQ(client.ask(get("/echo", "X-Api-Key: secret\r\n")).status, 200);
  client.send(get("/whose", "X-Api-Key: secret\r\n"));
  EXPECT_EQ(server.next().request.owner,
            owner_of({.headers = {{"x-api-key", "secret"}}}, options.access));
}

TEST(HttpServer, ABodyHasToBeJson) {
  ServerInTest server;
  EXPECT_EQ(status_of(server, post("/echo", "{}", "")), 415);
  EXPECT_EQ(status_of(server, post("/echo", "{}", "Content-Type: text/plain\r\n")), 415);
  EXPECT_EQ(status_of(server, post("/echo", "", "")), 200);
  EXPECT_EQ(
      status_of(server, post("/echo", "{}", "Content-Type: Application/JSON; charset=utf-8\r\n")),
      200);
}

TEST(HttpServer, IsNotPublicWithoutAKey) {
  const Handler handler = [](Request, std::shared_ptr<Response>) {};
  auto server = HttpServer::start({.host = "0.0.0.0", .port = 0}, handler);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(server.error().message().find("--allow-public"), std::string::npos);
  EXPECT_TRUE(
      HttpServer::start({.host = "0.0.0.0", .port = 0, .allow_public_without_key = true}, handler)
          .ok());
  EXPECT_TRUE(
      HttpServer::start({.host = "0.0.0.0", .port = 0, .access = {.api_keys = {"key"}}}, handler)
          .ok());
}

TEST(HttpServer, SaysWhyItCannotListen) {
  const Handler handler = [](Request, std::shared_ptr<Response>) {};
  ServerInTest server;
  auto second = HttpServer::start({.port = server->port()}, handler);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kIo);
  auto nowhere = HttpServer::start({.host = "no host"}, handler);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code(), ErrorCode::kInvalidArgument);
}

TEST(HttpServer, ListensAtAPath) {
  const std::string path = ::testing::TempDir() + "moeflux_http_" + std::to_string(::getpid());
  const mode_t mask = ::umask(0);
  ServerInTest server({.unix_socket = path});
  ::umask(mask);
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(server->address(), "unix:" + path);
  EXPECT_EQ(server->port(), 0);
  {
    RawClient client(path);
    EXPECT_EQ(client.ask("GET /echo HTTP/1.1\r\nHost: any\r\n\r\n").status, 200);
  }
  auto second = HttpServer::start({.unix_socket = path}, [](Request, std::shared_ptr<Response>) {});
  EXPECT_FALSE(second.ok());
  server.destroy();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(HttpServer, SlowHeadersAreTold408) {
  HttpServerOptions options;
  options.limits.header_time = milliseconds(100);
  ServerInTest server(options);
  RawClient client = answered_client(server);
  EXPECT_EQ(client.ask("GET /echo HTTP/1.1\r\n").status, 408);
  EXPECT_TRUE(client.ends());
  EXPECT_TRUE(server.client().ends());  // who asked nothing hears nothing
  // Bytes that come now and then are no headers either.
  RawClient steady = answered_client(server);
  steady.send("GET /echo HTTP/1.1\r\nX-Test: ");
  const auto was_told = [](const auto& s) {
    return s.answers.count(408) && s.answers.at(408) == 2;
  };
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!was_told(server->statistics()) && std::chrono::steady_clock::now() < end) {
    steady.send("a");
    ::usleep(5000);
  }
  EXPECT_EQ(steady.answer().status, 408);
}

TEST(HttpServer, SlowBodiesAreTold408) {
  HttpServerOptions options;
  options.limits.body_window = milliseconds(50);
  ServerInTest server(options);
  const std::string request = post("/echo", "{}");
  EXPECT_EQ(status_of(server, std::string_view(request).substr(0, request.size() - 1)), 408);
}

TEST(HttpServer, ABodyThatComesSteadilyHasAnEndToo) {
  HttpServerOptions options;
  options.limits.body_time = milliseconds(300);
  options.limits.body_window = milliseconds(100);
  options.limits.body_bytes_per_second = 0;
  ServerInTest server(options);
  RawClient client = server.client();
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 1000000\r\n\r\n");
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (server->statistics().answers.empty() && std::chrono::steady_clock::now() < end) {
    client.send(" ");
    ::usleep(5000);
  }
  EXPECT_EQ(client.answer().status, 408);
}

TEST(HttpServer, AnIdleConnectionIsClosed) {
  HttpServerOptions options;
  options.limits.keep_alive_time = milliseconds(50);
  ServerInTest server(options);
  RawClient client = server.client();
  EXPECT_EQ(client.ask(get("/echo")).status, 200);
  EXPECT_TRUE(client.ends());
}

TEST(HttpServer, OldClientsGetWhatTheyUnderstand) {
  ServerInTest server;
  RawClient client = server.client();
  Received got = client.ask("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(got.header("connection"), "keep-alive");
  got = client.ask("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(got.header("connection"), "close");
  EXPECT_TRUE(client.ends());
  RawClient streamed = server.client();
  streamed.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto asked = server.next();
  asked.response->begin(200, {});
  asked.response->write("a");
  asked.response->write("b");
  asked.response->end();
  got = streamed.answer();
  EXPECT_EQ(got.header("transfer-encoding"), "");
  EXPECT_EQ(got.header("connection"), "close");
  EXPECT_EQ(got.body, "ab");
}

TEST(HttpServer, TooManyConnectionsAreTold503) {
  HttpServerOptions options;
  options.limits.connections = 2;
  ServerInTest server(options);
  RawClient first = server.client();
  RawClient second = server.client();
  EXPECT_EQ(first.ask(get("/echo")).status, 200);
  EXPECT_EQ(second.ask(get("/echo")).status, 200);
  {
    RawClient third = server.client();
    const Received got = third.ask(get("/echo"));
    EXPECT_EQ(got.status, 503);
    EXPECT_NE(got.header("x-request-id"), "");
  }
  first.close();
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 1; }));
  EXPECT_EQ(status_of(server, get("/echo")), 200);
  EXPECT_EQ(server->statistics().refused, 1u);
}

TEST(HttpServer, WithoutDescriptorsItWaitsAndDoesNotSpin) {
  HttpServerOptions options;
  options.limits.accept_pause = milliseconds(20);
  ServerInTest server(options);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto begin = std::chrono::steady_clock::now();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  EXPECT_TRUE(server.soon([](const auto& s) { return s.accept_pauses >= 3; }));
  const uint64_t pauses = server->statistics().accept_pauses;
  const auto time = std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(connected, 0);
  EXPECT_LE(pauses, static_cast<uint64_t>(time / milliseconds(20)) + 1);
  EXPECT_TRUE(server.soon([](const auto& s) { return s.accepted == 1; }));
  ::close(socket);
  EXPECT_EQ(status_of(server, get("/echo")), 200);
}

}  // namespace
}  // namespace moeflux::serve
