// The stream of a request that waits for its model to be loaded: it begins when that does and tells
// of the load, then the answer goes on in it. Knows no models.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "serve/wire/interface.h"

namespace moeflux::serve {

/// Whether a request asks for a stream that tells of progress.
bool wants_loading(const Json& body, const Interface& interface);

/// A response in front of another. An error before the first tell() still has its own status.
class LoadingStream : public Response {
 public:
  /// The chunk is an empty one of the route's.
  LoadingStream(AnswerTarget target, Json chunk);

  /// Tells how much of the model is loaded, 0 to 1: at first, some times a second, and at the end.
  void tell(double progress);

  /// In a stream that has begun it is the last event: the status has gone out.
  void send(int status, Headers headers, std::string body) override;
  void begin(int status, Headers headers) override {
    if (!begun_) response_->begin(status, std::move(headers));
  }
  void write(std::string bytes) override { response_->write(std::move(bytes)); }
  void end() override { response_->end(); }
  void keep_alive(std::string bytes, std::chrono::milliseconds interval) override {
    response_->keep_alive(std::move(bytes), interval);
  }
  void break_silence(std::function<std::string()> bytes,
                     std::chrono::milliseconds interval) override {
    response_->break_silence(std::move(bytes), interval);
  }
  size_t unsent_bytes() const override { return response_->unsent_bytes(); }
  void when_drained(size_t bytes, std::function<void()> drained) override {
    response_->when_drained(bytes, std::move(drained));
  }
  void when_closed(std::function<void()> closed) override {
    response_->when_closed(std::move(closed));
  }
  bool is_closed() const override { return response_->is_closed(); }
  void count_tokens(int64_t prompt, int64_t generated) override {
    response_->count_tokens(prompt, generated);
  }
  std::string close_reason() const override { return response_->close_reason(); }

 private:
  void write_event(const std::string& json);

  const AnswerTarget target_;
  const std::shared_ptr<Response> response_;
  Json chunk_;
  bool begun_ = false;
  std::chrono::steady_clock::time_point told_;
};

}  // namespace moeflux::serve
