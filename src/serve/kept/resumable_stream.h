// One stream whose events are kept, between who gives it and whoever reads it at the time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "serve/wire/api_error.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

/// The giver writes whole server-sent events, as many at a time as it likes.
class ResumableStream : public Response, public std::enable_shared_from_this<ResumableStream> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  ResumableStream(size_t bytes_max, std::function<Time()> now, std::shared_ptr<Response> reader)
      : bytes_max_(bytes_max), now_(std::move(now)), reader_(std::move(reader)) {}

  // --- The giver's side ---

  void send(int status, Headers headers, std::string body) override;
  void begin(int status, Headers headers) override;
  void write(std::string bytes) override;
  void end() override;
  void keep_alive(std::string bytes, std::chrono::milliseconds interval) override;
  size_t unsent_bytes() const override;
  void when_drained(size_t bytes, std::function<void()> drained) override;
  void when_closed(std::function<void()> closed) override;
  bool is_closed() const override;
  std::string close_reason() const override;
  void count_tokens(int64_t prompt, int64_t generated) override;

  // --- The readers' side ---

  std::optional<ApiError> attach(uint64_t from, std::shared_ptr<Response> reader);
  /// Tells the giver that nobody will come back, and why.
  void close(const std::string& reason);

  /// When it ended, if it has. An answer that came whole ended at once.
  std::optional<Time> ended_at() const;

 private:
  void add_event_locked(std::string event);
  void detach(const Response* reader);
  std::shared_ptr<Response> reader() const;

  const size_t bytes_max_;
  const std::function<Time()> now_;

  mutable std::mutex mutex_;          // guards what follows
  std::shared_ptr<Response> reader_;  // or null
  bool begun_ = false;
  std::optional<Time> ended_at_;
  int status_ = 0;
  Headers headers_;
  std::deque<std::string> kept_;
  uint64_t first_ = 0;  // the number of the first kept event
  size_t kept_bytes_ = 0;
  std::string keep_alive_;
  std::chrono::milliseconds keep_alive_interval_{0};
  std::function<void()> when_closed_;
  std::string close_reason_;
};

}  // namespace moeflux::serve
