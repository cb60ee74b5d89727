// An answer on its way from the service to whoever asked from within the same program: what is
// written waits here until it is taken. Knows bytes and locks; no handles of moeflux.h.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "serve/wire/exchange.h"

namespace moeflux {

/// The bytes since the piece before.
struct AnswerPiece {
  int status = 0;  // 0: the answer has not begun
  bool ended = false;
  serve::Headers headers;
  std::string bytes;
  std::string keep_alive;  // to send when nothing else was sent for `keep_alive_interval`
  std::chrono::milliseconds keep_alive_interval{0};  // 0: no need
};

class AnswerBox : public serve::Response {
 public:
  /// `on_ready`, or null, is called when there is something to take, not again before take(), by
  /// whoever writes: with locks of the service held. `head_only`: bodies are left out.
  AnswerBox(std::function<void()> on_ready, bool head_only);

  /// The Response to give away. When its last owner leaves without an end, the answer fails.
  static std::shared_ptr<serve::Response> response(const std::shared_ptr<AnswerBox>& box);

  // --- The taker's side ---

  /// All there is; waits up to `timeout_ms`, negative: without end, while there is nothing. A piece
  /// without news when the time is over. Fails with kCancelled after abort(). One thread at a time.
  Result<AnswerPiece> take(int64_t timeout_ms);
  /// The peer has gone: the service stops. Any thread.
  void abort();
  /// Calls `on_ready` no more; returns when no call of it runs. Not from it.
  void silence();
  /// Nothing more will come.
  bool is_over() const;

  // --- As in Response ---

  void send(int status, serve::Headers headers, std::string body) override;
  void begin(int status, serve::Headers headers) override;
  void write(std::string bytes) override;
  void end() override;
  void keep_alive(std::string bytes, std::chrono::milliseconds interval) override;
  size_t unsent_bytes() const override;
  /// `drained` is called by take() or abort(), here only after abort().
  void when_drained(size_t bytes, std::function<void()> drained) override;
  void when_closed(std::function<void()> closed) override;
  bool is_closed() const override;

 private:
  void give_up();
  /// Tells the taker; unlocks for the call of `on_ready`.
  void wake(std::unique_lock<std::mutex>& lock);
  bool has_news() const;
  bool is_drained() const { return drained_ != nullptr && pending_.size() <= drained_at_; }
  AnswerPiece take_locked();

  const bool head_only_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::function<void()> on_ready_;
  int calls_of_on_ready_ = 0;  // at this moment
  bool ready_ = false;         // the taker knows that there is something
  int status_ = 0;
  bool begun_told_ = false;
  bool ended_ = false;
  bool given_up_ = false;
  bool closed_ = false;
  serve::Headers headers_;
  std::string pending_;
  std::string keep_alive_;
  std::chrono::milliseconds keep_alive_interval_{0};
  size_t drained_at_ = 0;
  std::function<void()> drained_;
  std::function<void()> when_closed_;
};

}  // namespace moeflux
