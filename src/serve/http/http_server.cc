// Sockets and clocks of the HTTP server, in one file: it alone knows Asio, and a connection is one
// state machine.
//
// Everything of Connection and Server but what is marked runs on the loop's thread, so none of it
// locks. Handlers and givers of answers reach a connection through its AnswerChannel.
#include "serve/http/http_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/format.h"
#include "serve/http/handler_lanes.h"
#include "serve/http/http_answer.h"
#include "serve/http/incoming_body.h"

namespace moeflux::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kReadBytes = 64 * 1024;
// A client may send so much of further requests before it has its answer; the rest stays with it.
constexpr size_t kReadAheadMax = 64 * 1024;
// Connections that are one too many and wait for their 503; further ones are closed at once.
constexpr size_t kRefusedMax = 64;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

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

class Connection;

class Server : public HttpServer {
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

  // What connections use.
  const HttpServerOptions& options() const { return options_; }
  Reach reach() const { return reach_; }
  const std::shared_ptr<AsioLoop>& loop() const { return loop_; }
  bool is_draining() const { return draining_; }
  std::array<char, kReadBytes>& scratch() { return scratch_; }
  std::string new_request_id() { return make_request_id(id_seed_, ++last_id_); }
  std::atomic<size_t>& bodies_bytes() { return bodies_bytes_; }
  HandlerLanes& lanes() { return *lanes_; }
  void count_answer(int status);
  void count_dropped();
  void remove(const std::shared_ptr<Connection>& connection, bool was_refused);

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
  std::shared_ptr<AsioLoop> loop_;
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

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server& server, Socket socket, bool is_refused)
      : server_(server),
        socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        is_refused_(is_refused),
        is_late_(server.is_draining()) {}

  void start();
  /// Closes if nothing was asked that has no answer yet.
  void drain();
  void close();
  /// It came before the server began to drain. Then: its answer is not whole, or not begun.
  bool is_early() const { return !is_late_; }
  bool is_unanswered() const;

 private:
  enum class Phase {
    kIdle,       // no byte of a request is there
    kHeader,     // some of its headers
    kBody,       // all of them
    kAnswering,  // the request is whole or refused; channel_ has the answer
    kLingering,  // all is sent; what still comes is thrown away
    kClosed
  };
  struct Write {
    std::string bytes;
    size_t sent = 0;
    std::optional<AnswerPiece> piece;  // without its bytes; none for an interim answer
  };

  // Reading.
  void read();
  void on_readable(const error_code& wait_error);
  void advance();
  void on_header();
  void make_frame();
  void dispatch();

  // Answering.
  void make_channel();
  void answer(int status, Headers headers, std::string body, bool keep_alive);
  void refuse(const Refusal& refusal, bool keep_alive);
  void pump();
  void write(std::string bytes, std::optional<AnswerPiece> piece);
  void write_more();
  void on_written(const error_code& error, size_t bytes);
  void on_write_done();
  void finish_answer(const AnswerPiece& piece);
  void linger();

  // Time.
  std::optional<Clock::time_point> deadline() const;
  void set_clock();
  void on_clock(uint64_t round);
  void on_deadline();
  void drop();

  const HttpLimits& limits() const { return server_.options().limits; }

  Server& server_;
  Socket socket_;
  asio::steady_timer timer_;
  const bool is_refused_;
  const bool is_late_;

  Phase phase_ = Phase::kIdle;
  bool is_reading_ = false;
  bool is_first_request_ = true;
  std::string buffer_;  // read and not parsed
  std::unique_ptr<RequestReader> reader_;
  std::optional<IncomingBody> body_;  // while it is read
  AnswerFrame frame_;
  std::shared_ptr<AnswerChannel> channel_;
  bool keep_alive_ = false;  // the request allows another one
  std::optional<Write> write_;

  Clock::time_point phase_begin_ = Clock::now();
  Clock::time_point last_sent_;
  std::optional<Clock::time_point> timer_at_;  // when the timer fires
  uint64_t timer_round_ = 0;                   // a timer that was set anew may have fired before
};

// --- Connection: reading ---

void Connection::start() {
  if (is_refused_) {
    make_frame();
    refuse({503, "unavailable_error", "", "too many connections, try again later"}, false);
    return;
  }
  set_clock();
  read();
}

void Connection::read() {
  const bool is_full = phase_ == Phase::kAnswering && buffer_.size() >= kReadAheadMax;
  if (is_reading_ || is_full || phase_ == Phase::kClosed) return;
  is_reading_ = true;
  // Waiting takes no buffer: a thousand idle connections share the server's.
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->on_readable(error);
  });
}

void Connection::on_readable(const error_code& wait_error) {
  is_reading_ = false;
  if (phase_ == Phase::kClosed) return;
  error_code error = wait_error;
  auto& scratch = server_.scratch();
  const size_t bytes = error ? 0 : socket_.read_some(asio::buffer(scratch), error);
  if (error == asio::error::would_block || error == asio::error::try_again ||
      error == asio::error::interrupted) {
    return read();
  }
  if (error) return close();
  if (phase_ == Phase::kLingering) return read();
  buffer_.append(scratch.data(), bytes);
  if (phase_ == Phase::kAnswering) return read();
  advance();
}

void Connection::advance() {
  while (phase_ == Phase::kBody || !buffer_.empty()) {
    if (phase_ == Phase::kIdle) {
      reader_ = std::make_unique<RequestReader>(limits().request);
      phase_ = Phase::kHeader;
      // A new connection's time began with it: its first byte may come late.
      if (!is_first_request_) phase_begin_ = Clock::now();
    }
    const size_t taken = reader_->feed(buffer_);
    buffer_.erase(0, taken);
    if (phase_ == Phase::kBody && !body_->add(taken)) {
      return refuse({503, "unavailable_error", "", "too much is being read, try again later"},
                    false);
    }
    const auto state = reader_->state();
    if (state == RequestReader::State::kRefused) {
      make_frame();
      return refuse(reader_->problem(), false);
    }
    if (state == RequestReader::State::kDone) return dispatch();
    if (state != RequestReader::State::kHeaderDone) break;
    on_header();
    if (phase_ != Phase::kBody) return;
  }
  set_clock();
  read();
}

void Connection::on_header() {
  const auto& rules = server_.options().access;
  const RequestMeta& meta = reader_->meta();
  const Request& request = reader_->request();
  make_frame();
  // A body that nobody reads would be taken for the next request.
  const bool keep_alive = meta.keep_alive && !meta.has_body;
  if (const auto refusal = check_access(request, meta.has_body, rules, server_.reach())) {
    return refuse(*refusal, keep_alive);
  }
  if (request.method == "OPTIONS") {
    Headers headers = cors_headers(request, rules, true);
    headers.emplace_back("Allow", "GET, HEAD, POST, DELETE, OPTIONS");
    return answer(204, std::move(headers), {}, keep_alive);
  }
  phase_ = Phase::kBody;
  body_.emplace(limits(), server_.bodies_bytes(), Clock::now());
  if (meta.has_body && meta.expects_continue && buffer_.empty()) {
    write(std::string(kContinue), std::nullopt);
  }
}

void Connection::make_frame() {
  frame_ = {};
  std::string id;
  if (reader_ != nullptr) {
    const Request& request = reader_->request();
    frame_.minor_version = reader_->meta().minor_version;
    frame_.head_only = request.method == "HEAD";
    const std::string_view given = header(request, "x-request-id");
    if (is_request_id(given)) id = std::string(given);
    frame_.headers = cors_headers(request, server_.options().access, false);
  }
  if (id.empty()) id = server_.new_request_id();
  frame_.headers.emplace_back("x-request-id", id);
  frame_.headers.emplace_back("request-id", id);
}

void Connection::dispatch() {
  Request request = std::move(reader_->request());
  // HEAD is GET to everybody but the channel.
  if (frame_.head_only) request.method = "GET";
  // The handler finds the id under which the client knows the answer.
  std::erase_if(request.headers, [](const auto& field) { return field.first == "x-request-id"; });
  for (const auto& [name, value] : frame_.headers) {
    if (name == "x-request-id") request.headers.emplace_back(name, value);
  }
  keep_alive_ = reader_->meta().keep_alive;
  auto share = body_->take_share();
  make_channel();
  server_.lanes().handle(std::move(request), make_response(channel_), std::move(share));
  set_clock();
  read();
}

// --- Connection: answering ---

void Connection::make_channel() {
  reader_.reset();
  body_.reset();
  if (buffer_.empty()) buffer_ = {};  // gives memory back for as long as the answer takes
  phase_ = Phase::kAnswering;
  is_first_request_ = false;
  last_sent_ = Clock::now();
  channel_ = std::make_shared<AnswerChannel>(frame_, server_.loop(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->pump();
  });
}

void Connection::answer(int status, Headers headers, std::string body, bool keep_alive) {
  keep_alive_ = keep_alive;
  make_channel();
  channel_->send(status, std::move(headers), std::move(body));
  pump();
  read();
}

void Connection::refuse(const Refusal& refusal, bool keep_alive) {
  Headers headers = {{"Content-Type", "application/json"}};
  if (refusal.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (refusal.status == 503) headers.emplace_back("Retry-After", "1");
  const std::string path = reader_ == nullptr ? std::string() : reader_->request().path;
  answer(refusal.status, std::move(headers), refusal_body(refusal, path), keep_alive);
}

void Connection::pump() {
  if (phase_ != Phase::kAnswering || write_) return;
  auto piece = channel_->take(keep_alive_ && !server_.is_draining());
  if (!piece) return set_clock();
  std::string bytes = std::move(piece->bytes);
  write(std::move(bytes), std::move(piece));
}

void Connection::write(std::string bytes, std::optional<AnswerPiece> piece) {
  write_ = Write{.bytes = std::move(bytes), .piece = std::move(piece)};
  last_sent_ = Clock::now();
  if (write_->bytes.empty()) return on_write_done();
  write_more();
}

void Connection::write_more() {
  set_clock();
  socket_.async_write_some(
      asio::buffer(write_->bytes.data() + write_->sent, write_->bytes.size() - write_->sent),
      [self = shared_from_this()](const error_code& error, size_t bytes) {
        self->on_written(error, bytes);
      });
}

void Connection::on_written(const error_code& error, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (error) return close();
  last_sent_ = Clock::now();
  write_->sent += bytes;
  if (write_->piece) channel_->sent(bytes);
  if (write_->sent < write_->bytes.size()) return write_more();
  on_write_done();
}

void Connection::on_write_done() {
  const auto piece = std::move(write_->piece);
  write_.reset();
  if (piece && piece->given_up) return close();
  if (piece && piece->last) return finish_answer(*piece);
  set_clock();
  pump();
}

void Connection::finish_answer(const AnswerPiece& piece) {
  server_.count_answer(piece.status);
  const auto channel = std::exchange(channel_, nullptr);
  channel->finish();
  if (!piece.keep_alive || server_.is_draining()) return linger();
  phase_ = Phase::kIdle;
  phase_begin_ = Clock::now();
  advance();  // with what came meanwhile
}

void Connection::linger() {
  phase_ = Phase::kLingering;
  phase_begin_ = Clock::now();
  buffer_ = {};
  error_code error;
  socket_.shutdown(Socket::shutdown_send, error);
  if (error) return close();
  set_clock();
  read();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  if (const auto channel = std::exchange(channel_, nullptr)) {
    server_.count_dropped();
    channel->close();
  }
  server_.remove(shared_from_this(), is_refused_);
}

void Connection::drop() {
  // Without this the kernel keeps what the peer does not take for minutes.
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

void Connection::drain() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kHeader) close();
}

bool Connection::is_unanswered() const {
  return phase_ == Phase::kBody || (phase_ == Phase::kAnswering && !channel_->is_answered());
}

// --- Connection: time ---

std::optional<Clock::time_point> Connection::deadline() const {
  switch (phase_) {
    case Phase::kIdle:
      return phase_begin_ + (is_first_request_ ? limits().header_time : limits().keep_alive_time);
    case Phase::kHeader:
      return phase_begin_ + limits().header_time;
    case Phase::kBody:
      return body_->deadline();
    case Phase::kAnswering: {
      if (write_) return last_sent_ + limits().write_time;
      const auto silence = channel_->silence();
      if (silence.interval.count() == 0) return std::nullopt;
      return last_sent_ + silence.interval;
    }
    case Phase::kLingering:
      return phase_begin_ + limits().linger_time;
    case Phase::kClosed:
      return std::nullopt;
  }
  __builtin_unreachable();
}

void Connection::set_clock() {
  const auto wanted = deadline();
  // One that fires too early is set anew then; most deadlines only move on.
  if (!wanted || (timer_at_ && *timer_at_ <= *wanted)) return;
  timer_at_ = wanted;
  timer_.expires_at(*wanted);
  timer_.async_wait([self = shared_from_this(), round = ++timer_round_](const error_code& error) {
    if (!error) self->on_clock(round);
  });
}

void Connection::on_clock(uint64_t round) {
  if (phase_ == Phase::kClosed || round != timer_round_) return;
  timer_at_.reset();
  const auto wanted = deadline();
  if (wanted && *wanted <= Clock::now()) on_deadline();
  set_clock();
}

void Connection::on_deadline() {
  const auto now = Clock::now();
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kLingering:
      return close();
    case Phase::kHeader:
      make_frame();
      return refuse({408, "invalid_request_error", "", "the headers took too long"}, false);
    case Phase::kBody:
      if (!body_->is_slow(now)) return;
      return refuse({408, "invalid_request_error", "", "the body took too long"}, false);
    case Phase::kAnswering:
      if (write_) return drop();
      // What has been written meanwhile is on its way here and breaks the silence itself.
      last_sent_ = now;
      if (channel_->silence().is_due) channel_->speak();
      return pump();
    case Phase::kClosed:
      return;
  }
}

// --- Server ---

Server::Server(HttpServerOptions options, Handler handler)
    : options_(std::move(options)),
      work_(asio::make_work_guard(io_)),
      loop_(std::make_shared<AsioLoop>(io_)),
      acceptor_(io_),
      incoming_(io_),
      accept_timer_(io_),
      id_seed_(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())),
      lanes_(std::in_place, std::move(handler), options_.is_at_once) {}

Server::~Server() {
  if (thread_.joinable()) stop(milliseconds(0));
  lanes_.reset();  // requests that no handler has seen are forgotten
  loop_->end();
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
                      "host '{}' is no address and no name that is known: {}", options_.host,
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
