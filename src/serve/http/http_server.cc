// The HTTP server: who is accepted, its thread, and its end. The work of one connection is in
// http_connection.h.
//
// Everything of Server but what is marked runs on the loop's thread, so none of it locks.
#include "serve/http/http_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/format.h"
#include "serve/http/http_connection.h"

namespace moeflux::serve {
namespace {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

// Connections that are one too many and wait for their 503; further ones are closed at once.
constexpr size_t kRefusedMax = 64;

class AsioLoop : public Loop {
 public:
  explicit AsioLoop(asio::io_context& io) : io_(&io) {}
  bool post(std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return false;
    asio::post(*io_, std::move(task));
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

 private:
  std::mutex mutex_;  // guards io_
  asio::io_context* io_;
};

class Server : public HttpServer, public ConnectionHost {
 public:
  Server(HttpServerOptions options, Handler handler);
  ~Server() override;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Before anything else.
  Status listen();
  void run();

  // From any thread.
  uint16_t port() const override { return port_; }
  std::string address() const override { return address_; }
  void drain() override {
    call_on_loop([this] { close_idle(); });
  }
  void wait_for_answers(milliseconds grace, milliseconds unanswered) override;
  void stop(milliseconds grace) override;
  HttpStatistics statistics() const override;
  bool is_handling() const override { return lanes_->is_handling(); }

  // Functions for connections.
  const HttpServerOptions& options() const override { return options_; }
  Reach reach() const override { return reach_; }
  const std::shared_ptr<Loop>& loop() const override { return loop_; }
  bool is_draining() const override { return draining_; }
  std::array<char, kReadBytes>& scratch() override { return scratch_; }
  std::string new_request_id() override { return make_request_id(id_seed_, ++last_id_); }
  std::atomic<size_t>& bodies_bytes() override { return bodies_bytes_; }
  HandlerLanes& lanes() override { return *lanes_; }
  void count_answer(int status) override;
  void count_dropped() override;
  void remove(const std::shared_ptr<Connection>& connection, bool was_refused) override;

 private:
  Result<asio::ip::tcp::endpoint> endpoint() const;
  Status listen_tcp();
  Status listen_unix();
  void accept();
  void on_accept(const error_code& error);
  void call_on_loop(const std::function<void()>& task);
  void close_idle();
  void close_all();
  bool wait_until_empty(std::optional<milliseconds> time);

  const HttpServerOptions options_;
  asio::io_context io_{1};
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::shared_ptr<AsioLoop> asio_loop_;
  std::shared_ptr<Loop> loop_;  // the same
  Acceptor acceptor_;
  Socket incoming_;
  asio::steady_timer accept_timer_;
  std::atomic<size_t> bodies_bytes_ = 0;
  std::set<std::shared_ptr<Connection>> connections_;
  size_t refused_open_ = 0;  // of connections_
  bool draining_ = false;
  bool accepts_ = true;
  std::array<char, kReadBytes> scratch_;  // what a connection has just read
  uint64_t id_seed_;
  uint64_t last_id_ = 0;
  Reach reach_ = Reach::kLoopback;
  uint16_t port_ = 0;
  std::string address_;
  bool owns_socket_file_ = false;

  mutable std::mutex mutex_;  // guards statistics_
  std::condition_variable empty_;
  HttpStatistics statistics_;

  std::optional<HandlerLanes> lanes_;
  std::thread thread_;
};
Server::Server(HttpServerOptions options, Handler handler)
    : options_(std::move(options)),
      work_(asio::make_work_guard(io_)),
      asio_loop_(std::make_shared<AsioLoop>(io_)),
      loop_(asio_loop_),
      acceptor_(io_),
      incoming_(io_),
      accept_timer_(io_),
      id_seed_(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())),
      lanes_(std::in_place, std::move(handler), options_.is_at_once) {}

Server::~Server() {
  if (thread_.joinable()) stop(milliseconds(0));
  lanes_.reset();  // requests that no handler has seen are forgotten
  asio_loop_->end();
  work_.reset();
  if (thread_.joinable()) thread_.join();
}

Result<asio::ip::tcp::endpoint> Server::endpoint() const {
  std::string_view host = options_.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  error_code error;
  const auto address = asio::ip::make_address(std::string(host), error);
  if (!error) return asio::ip::tcp::endpoint(address, options_.port);
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  const auto found = resolver.resolve(std::string(host), "", error);
  if (error || found.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "host '{}' is not an address or a known name: {}", options_.host,
                      error.message());
  }
  return asio::ip::tcp::endpoint(found.begin()->endpoint().address(), options_.port);
}

Status Server::listen_tcp() {
  MF_ASSIGN_OR_RETURN(const asio::ip::tcp::endpoint at, endpoint());
  if (!at.address().is_loopback()) {
    reach_ = Reach::kNetwork;
    if (options_.access.api_keys.empty() && !options_.allow_public_without_key) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "host {} can be reached from other machines and no API key is set: "
                        "expected a key, or --allow-public to let everybody in",
                        options_.host);
    }
  }
  error_code error;
  asio::ip::tcp::acceptor acceptor(io_);
  acceptor.open(at.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(at, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) port_ = acceptor.local_endpoint(error).port();
  if (error) {
    return make_error(ErrorCode::kIo, "cannot listen at {} port {}: {}", options_.host,
                      options_.port, error.message());
  }
  std::string host = at.address().to_string();
  if (at.address().is_v6()) host = formatted("[{}]", host);
  address_ = formatted("http://{}:{}", host, port_);
  acceptor_ = std::move(acceptor);
  return {};
}

Status Server::listen_unix() {
  reach_ = Reach::kUnixSocket;
  const std::string& path = options_.unix_socket;
  if (path.size() > 100) {
    return make_error(ErrorCode::kInvalidArgument, "unix socket {}: {} bytes, expected at most 100",
                      path, path.size());
  }
  error_code error;
  asio::local::stream_protocol::acceptor acceptor(io_);
  acceptor.open(asio::local::stream_protocol(), error);
  if (!error) acceptor.bind(asio::local::stream_protocol::endpoint(path), error);
  if (!error) {
    owns_socket_file_ = true;
    // Nobody can connect before listen(): there is no moment at which others could.
    if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0) {
      error = error_code(errno, boost::system::system_category());
    }
  }
  if (!error) {
    acceptor.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    return make_error(
        ErrorCode::kIo, "cannot listen at unix socket {}: {}{}", path, error.message(),
        error == asio::error::address_in_use ? " (remove the file if no server uses it)" : "");
  }
  address_ = "unix:" + path;
  acceptor_ = std::move(acceptor);
  return {};
}

Status Server::listen() {
  MF_RETURN_IF_ERROR(options_.unix_socket.empty() ? listen_tcp() : listen_unix());
  error_code error;
  acceptor_.non_blocking(true, error);
  return {};
}

void Server::run() {
  accept();
  thread_ = std::thread([this] { io_.run(); });
}

void Server::accept() {
  acceptor_.async_accept(incoming_, [this](const error_code& error) { on_accept(error); });
}

void Server::on_accept(const error_code& error) {
  if (!accepts_) {
    error_code ignored;
    incoming_.close(ignored);
    return;
  }
  if (error) {
    // No descriptor or memory, as a rule: the connection stays in the system's queue, which says so
    // at once, again and again.
    {
      const std::lock_guard lock(mutex_);
      ++statistics_.accept_pauses;
    }
    accept_timer_.expires_after(options_.limits.accept_pause);
    accept_timer_.async_wait([this](const error_code& stopped) {
      if (!stopped && accepts_) accept();
    });
    return;
  }
  Socket socket = std::move(incoming_);
  error_code ignored;
  socket.non_blocking(true, ignored);
  if (reach_ != Reach::kUnixSocket) {
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    watch_peer(socket.native_handle());
  }
  const bool refused =
      connections_.size() - refused_open_ >= static_cast<size_t>(options_.limits.connections);
  const bool hopeless = refused && refused_open_ >= kRefusedMax;
  {
    const std::lock_guard lock(mutex_);
    ++statistics_.accepted;
    if (refused) ++statistics_.refused;
    if (!hopeless) ++statistics_.connections;
  }
  if (!hopeless) {
    const auto connection = std::make_shared<Connection>(*this, std::move(socket), refused);
    connections_.insert(connection);
    if (refused) ++refused_open_;
    connection->start();
  }
  accept();
}

void Server::remove(const std::shared_ptr<Connection>& connection, bool was_refused) {
  connections_.erase(connection);
  if (was_refused) --refused_open_;
  const std::lock_guard lock(mutex_);
  if (--statistics_.connections == 0) empty_.notify_all();
}

void Server::count_answer(int status) {
  const std::lock_guard lock(mutex_);
  ++statistics_.answers[status];
}

void Server::count_dropped() {
  const std::lock_guard lock(mutex_);
  ++statistics_.dropped_answers;
}

HttpStatistics Server::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void Server::close_idle() {
  draining_ = true;
  const auto connections = connections_;  // each removes itself
  for (const auto& connection : connections) connection->drain();
}

void Server::close_all() {
  const auto connections = connections_;
  for (const auto& connection : connections) connection->close();
}

// Returns when `task` has been called on the loop's thread.
void Server::call_on_loop(const std::function<void()>& task) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  loop_->post([&] {
    task();
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

bool Server::wait_until_empty(std::optional<milliseconds> time) {
  std::unique_lock lock(mutex_);
  const auto is_empty = [this] { return statistics_.connections == 0; };
  if (time) return empty_.wait_for(lock, *time, is_empty);
  empty_.wait(lock, is_empty);
  return true;
}

void Server::wait_for_answers(milliseconds grace, milliseconds unanswered) {
  constexpr milliseconds kLook{20};
  const auto begin = Clock::now();
  while (true) {
    bool waits = false;
    bool is_begun = false;
    call_on_loop([&] {
      for (const auto& one : connections_) {
        if (one->is_early()) (one->is_unanswered() ? waits : is_begun) = true;
      }
    });
    const auto time = Clock::now() - begin;
    if (!waits && !is_begun) return;
    if (time >= (is_begun ? grace : unanswered) || wait_until_empty(kLook)) return;
  }
}

void Server::stop(milliseconds grace) {
  call_on_loop([this] {
    accepts_ = false;
    error_code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
    close_idle();
  });
  // Nobody is accepted any more: the count of connections only falls.
  if (!wait_until_empty(grace)) {
    loop_->post([this] { close_all(); });
    wait_until_empty(std::nullopt);
  }
  if (std::exchange(owns_socket_file_, false)) ::unlink(options_.unix_socket.c_str());
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, Handler handler) {
  try {
    auto server = std::make_unique<Server>(std::move(options), std::move(handler));
    MF_RETURN_IF_ERROR(server->listen());
    server->run();
    return std::unique_ptr<HttpServer>(std::move(server));
  } catch (const std::exception& problem) {
    // Asio makes its own descriptors and threads in constructors, which can only throw.
    return make_error(ErrorCode::kResourceExhausted, "cannot start the HTTP server: {}",
                      problem.what());
  }
}

}  // namespace moeflux::serve
