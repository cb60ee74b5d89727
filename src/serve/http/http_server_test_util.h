// A server on a free port with a handler that tests drive, and a client that sends any bytes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"
#include "serve/http/http_server.h"

namespace moeflux::serve {

/// A test that waits longer for another thread has found a hang.
inline constexpr std::chrono::seconds kPatience{20};

struct Received {
  int status = 0;
  Headers headers;  // names in lower case
  std::string body;
  bool whole = false;  // its end was there as its head promised

  std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

/// A blocking socket. A request that is never answered fails after kPatience.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_bytes = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  explicit RawClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    MF_CHECK(path.size() < sizeof(address.sun_path));
    path.copy(address.sun_path, path.size());
    connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        timed_out_(other.timed_out_),
        read_(std::move(other.read_)) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// Closes so that the server sees a reset.
  void reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close();
  }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }

  /// False once the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = again([&] { return ::send(fd_, bytes.data(), bytes.size(), 0); });
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  /// Some more bytes; false at the end of what the server sends.
  bool receive() {
    char bytes[16384];
    const ssize_t n = again([&] { return ::recv(fd_, bytes, sizeof(bytes), 0); });
    if (n <= 0) {
      timed_out_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      return false;
    }
    read_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  /// Until the text is there, which it returns with what stood before.
  std::string receive_until(std::string_view text) {
    size_t at = 0;
    while ((at = read_.find(text)) == std::string::npos) {
      if (!receive()) return std::exchange(read_, {});
    }
    return take(at + text.size());
  }
  std::string receive_all() {
    while (receive()) {
    }
    return std::exchange(read_, {});
  }

  /// The next answer; to a HEAD request with `head_only`.
  Received answer(bool head_only = false) {
    Received received;
    const std::string head = receive_until("\r\n\r\n");
    if (!head.ends_with("\r\n\r\n")) return received;
    parse_head(head, &received);
    if (head_only || received.status == 204 || received.status / 100 == 1) {
      received.whole = true;
    } else if (received.header("transfer-encoding") == "chunked") {
      read_chunks(&received);
    } else if (const std::string length = received.header("content-length"); !length.empty()) {
      const size_t bytes = std::stoul(length);
      received.whole = fill(bytes);
      received.body = take(bytes);
    } else {
      received.body = receive_all();
      received.whole = !timed_out_;
    }
    return received;
  }
  Received ask(std::string_view request) {
    send(request);
    return answer();
  }

  /// The rest of an answer in chunks whose head has been received.
  Received chunks() {
    Received received;
    read_chunks(&received);
    return received;
  }

  /// Whether the server has closed, or does so soon, and sends nothing before.
  bool ends() { return read_.empty() && !receive() && !timed_out_; }

 private:
  void connect(const sockaddr* address, socklen_t bytes) {
    ::signal(SIGPIPE, SIG_IGN);  // send() says so
    const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    connected_ = ::connect(fd_, address, bytes) == 0;
  }
  // A socket with a timeout is interrupted by SIGCONT too, which no handler restarts.
  template <typename Call>
  static ssize_t again(Call call) {
    ssize_t n = -1;
    do {
      n = call();
    } while (n < 0 && errno == EINTR);
    return n;
  }
  std::string take(size_t bytes) {
    std::string taken = read_.substr(0, bytes);
    read_.erase(0, bytes);
    return taken;
  }
  bool fill(size_t bytes) {
    while (read_.size() < bytes) {
      if (!receive()) return false;
    }
    return true;
  }
  static void parse_head(const std::string& head, Received* received) {
    received->status = std::stoi(head.substr(9, 3));
    size_t at = head.find("\r\n") + 2;
    while (head.compare(at, 2, "\r\n") != 0) {
      const size_t colon = head.find(": ", at);
      const size_t end = head.find("\r\n", at);
      received->headers.emplace_back(lower_case(head.substr(at, colon - at)),
                                     head.substr(colon + 2, end - colon - 2));
      at = end + 2;
    }
  }
  void read_chunks(Received* received) {
    while (true) {
      const std::string line = receive_until("\r\n");
      if (line.size() < 3) return;
      const size_t bytes = std::stoul(line, nullptr, 16);
      if (!fill(bytes + 2)) return;
      received->body += take(bytes);
      if (take(2) != "\r\n") return;
      if (bytes == 0) break;
    }
    received->whole = true;
  }

  int fd_;
  bool connected_ = false;
  bool timed_out_ = false;
  std::string read_;
};

/// A thing that happens once on another thread.
class Event {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [this] { return is_set_; });
  }
  bool is_set() {
    const std::lock_guard lock(mutex_);
    return is_set_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

/// "/echo" answers with what it was asked; all other requests wait for the test in next().
class ServerInTest {
 public:
  explicit ServerInTest(HttpServerOptions options = {}) {
    options.port = 0;
    auto server = HttpServer::start(std::move(options), [this](Request request, auto response) {
      handle(std::move(request), std::move(response));
    });
    MF_CHECK(server.ok());
    server_ = std::move(*server);
  }

  HttpServer& operator*() { return *server_; }
  HttpServer* operator->() { return server_.get(); }
  void destroy() { server_.reset(); }
  RawClient client(int receive_bytes = 0) { return RawClient(server_->port(), receive_bytes); }

  struct Asked {
    Request request;
    std::shared_ptr<Response> response;
  };
  Asked next() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return !asked_.empty(); });
    if (asked_.empty()) return {};
    Asked first = std::move(asked_.front());
    asked_.pop_front();
    return first;
  }

  /// Whether statistics soon are as wanted.
  template <typename Wanted>
  bool soon(Wanted wanted) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!wanted(server_->statistics())) {
      if (std::chrono::steady_clock::now() > end) return false;
      ::usleep(1000);
    }
    return true;
  }

 private:
  void handle(Request request, std::shared_ptr<Response> response) {
    if (request.path == "/echo" || request.path == "/health") {
      const std::string text = request.method + " " + request.path + "?" + request.query + "|" +
                               std::string(header(request, "x-test")) + "|" + request.body;
      response->send(200, {{"Content-Type", "text/plain"}}, text);
      return;
    }
    const std::lock_guard lock(mutex_);
    asked_.push_back({std::move(request), std::move(response)});
    changed_.notify_all();
  }

  std::mutex mutex_;  // guards asked_
  std::condition_variable changed_;
  std::deque<Asked> asked_;
  std::unique_ptr<HttpServer> server_;  // destroyed first: it calls handle()
};

inline std::string get(std::string_view path, std::string_view headers = {}) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         "\r\n";
}

/// A connection that has had an answer, and so a request's whole time for the next one however
/// late the test goes on.
inline RawClient answered_client(ServerInTest& server) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    RawClient client = server.client();
    if (client.ask(get("/echo")).status == 200) return client;
    MF_CHECK(std::chrono::steady_clock::now() < end);
  }
}

inline std::string post(std::string_view path, std::string_view body,
                        std::string_view headers = "Content-Type: application/json\r\n") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace moeflux::serve
