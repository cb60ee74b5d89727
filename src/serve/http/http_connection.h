// One connection of the HTTP server as a state machine, and what it needs of its server. Asio comes
// in here alone.
//
// Everything of a Connection runs on the loop's thread, so none of it locks. Handlers and givers of
// answers reach a connection through its AnswerChannel.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/half_close.h"
#include "serve/http/handler_lanes.h"
#include "serve/http/http_answer.h"
#include "serve/http/http_server.h"
#include "serve/http/incoming_body.h"
#include "serve/http/request_reader.h"

namespace moeflux::serve {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline constexpr size_t kReadBytes = 64 * 1024;

class Connection;

/// The parts of a server that connections use, on the loop's thread.
class ConnectionHost {
 public:
  virtual const HttpServerOptions& options() const = 0;
  virtual Reach reach() const = 0;
  virtual const std::shared_ptr<Loop>& loop() const = 0;
  virtual bool is_draining() const = 0;
  /// The bytes that a connection has just read.
  virtual std::array<char, kReadBytes>& scratch() = 0;
  virtual std::string new_request_id() = 0;
  virtual std::atomic<size_t>& bodies_bytes() = 0;
  virtual HandlerLanes& lanes() = 0;
  virtual void count_answer(int status) = 0;
  virtual void count_dropped() = 0;
  virtual void remove(const std::shared_ptr<Connection>& connection, bool was_refused) = 0;

 protected:
  ~ConnectionHost() = default;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHost& server, Socket socket, bool is_refused)
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
  void on_input_end();
  void advance();
  void on_header();
  void make_frame();
  void dispatch();

  // Answering.
  void make_channel();
  void answer(int status, Headers headers, std::string body, bool keep_alive);
  void refuse(const Refusal& refusal, bool keep_alive);
  void report(int status, std::string_view reason);
  void pump();
  void write(std::string bytes, std::optional<AnswerPiece> piece);
  void write_more();
  void on_written(const error_code& error, size_t bytes);
  void on_write_done();
  void finish_answer(const AnswerPiece& piece);
  void linger();

  // Time.
  /// When to send what a peer that has ended its sending side may answer with a reset.
  std::optional<Clock::time_point> next_probe() const;
  std::optional<Clock::time_point> deadline() const;
  void set_clock();
  void on_clock(uint64_t round);
  void on_deadline();
  void drop();

  const HttpLimits& limits() const { return server_.options().limits; }

  ConnectionHost& server_;
  Socket socket_;
  asio::steady_timer timer_;
  const bool is_refused_;
  const bool is_late_;

  Phase phase_ = Phase::kIdle;
  std::optional<HalfClose> half_close_;  // from the end of what the peer sends on
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

}  // namespace moeflux::serve
