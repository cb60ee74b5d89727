// An answer on its way from whoever gives it to a connection's thread: what is written waits here,
// framed when the connection takes it. Knows bytes and locks, no sockets.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "serve/wire/exchange.h"

namespace moeflux::serve {

/// The thread of a transport. Thread-safe; outlives it as a closed one.
class Loop {
 public:
  virtual ~Loop() = default;
  /// Calls `task` on that thread, never at once. False, and no call, once the loop has ended.
  virtual bool post(std::function<void()> task) = 0;
};

/// The request's part in the form of its answer.
struct AnswerFrame {
  int minor_version = 1;
  bool head_only = false;  // HEAD: the head alone, which says the same as for GET
  Headers headers;         // go out with every answer to it
};

/// The bytes of one write of the connection.
struct AnswerPiece {
  std::string bytes;
  int status = 0;
  bool last = false;        // the answer is whole
  bool given_up = false;    // its giver has gone without an end
  bool keep_alive = false;  // with `last`: another request may follow
};

class AnswerChannel {
 public:
  /// `ready` is called on the loop when there is something to take.
  AnswerChannel(AnswerFrame frame, std::shared_ptr<Loop> loop, std::function<void()> ready);

  // --- The giver's side, from any thread: as in Response ---

  void send(int status, Headers headers, std::string body);
  void begin(int status, Headers headers);
  void write(std::string bytes);
  void end();
  void break_silence(std::function<std::string()> bytes, std::chrono::milliseconds interval);
  size_t unsent_bytes() const;
  void when_drained(size_t bytes, std::function<void()> drained);
  void when_closed(std::function<void()> closed);
  bool is_closed() const;
  /// The giver will not call again: an answer without an end is given up.
  void release();

  // --- The connection's side, on the loop's thread ---

  /// All there is to send. `keep_alive`: whether the connection may stay open after the answer.
  /// Nothing if there is nothing, or the last piece has been taken.
  std::optional<AnswerPiece> take(bool keep_alive);
  /// The peer took so many bytes of what was taken here.
  void sent(size_t bytes);
  /// Something of the answer is there.
  bool is_answered() const;
  /// The bytes to send after a silence of `interval`, while the answer is being given.
  struct KeepAlive {
    std::chrono::milliseconds interval{0};  // 0: none
    bool is_due = false;                    // nothing else is waiting
  };
  KeepAlive silence() const;
  /// Writes what the giver's break_silence() asks for.
  void speak();
  /// The last piece has been sent. To a giver that goes on, as for HEAD, the peer has gone.
  void finish();
  /// The peer has gone, or the server.
  void close();

 private:
  enum class Stage { kOpen, kStreaming, kEnded };

  void wake_locked();
  bool is_chunked() const { return streamed_ && frame_.minor_version > 0; }
  std::string head_locked(bool keep_alive) const;
  size_t unsent_locked() const { return pending_.size() + taken_; }

  const AnswerFrame frame_;
  const std::shared_ptr<Loop> loop_;

  mutable std::mutex mutex_;  // guards all below
  std::function<void()> ready_;
  bool waking_ = false;  // ready_ has been posted and not called
  Stage stage_ = Stage::kOpen;
  bool streamed_ = false;
  bool closed_ = false;
  bool given_up_ = false;
  bool head_taken_ = false;
  bool last_taken_ = false;
  int status_ = 0;
  Headers headers_;
  std::string pending_;
  size_t taken_ = 0;  // bytes taken and not sent
  std::function<std::string()> speech_;
  std::chrono::milliseconds speech_interval_{0};
  size_t drained_at_ = 0;
  std::function<void()> drained_;
  std::function<void()> when_closed_;
};

/// The Response of a channel. Its destructor releases the channel.
std::shared_ptr<Response> make_response(std::shared_ptr<AnswerChannel> channel);

}  // namespace moeflux::serve
