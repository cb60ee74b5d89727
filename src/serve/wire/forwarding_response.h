// A response in front of another, which gets all calls that a derived class does not take.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "serve/wire/exchange.h"

namespace moeflux::serve {

class ForwardingResponse : public Response {
 public:
  explicit ForwardingResponse(std::shared_ptr<Response> response)
      : response_(std::move(response)) {}

  void send(int status, Headers headers, std::string body) override {
    response_->send(status, std::move(headers), std::move(body));
  }
  void begin(int status, Headers headers) override { response_->begin(status, std::move(headers)); }
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

 protected:
  const std::shared_ptr<Response> response_;
};

}  // namespace moeflux::serve
