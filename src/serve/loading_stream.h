// The stream of a request that waits for its model to be loaded: it begins when that does and tells
// of the load, then the answer goes on in it. Knows no models.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "serve/wire/forwarding_response.h"
#include "serve/wire/interface.h"

namespace moeflux::serve {

/// Whether a request asks for a stream that tells of progress.
bool wants_loading(const Json& body, const Interface& interface);

/// An error before the first tell() still has its own status.
class LoadingStream : public ForwardingResponse {
 public:
  /// The chunk is an empty one of the route's.
  LoadingStream(AnswerTarget target, Json chunk);

  /// Tells how much of the model is loaded, 0 to 1: at first, some times a second, and at the end.
  void tell(double progress);

  /// In a stream that has begun it is the last event: the status has gone out.
  void send(int status, Headers headers, std::string body) override;
  void begin(int status, Headers headers) override {
    if (!begun_) ForwardingResponse::begin(status, std::move(headers));
  }

 private:
  void write_event(const std::string& json);

  const AnswerTarget target_;
  Json chunk_;
  bool begun_ = false;
  std::chrono::steady_clock::time_point told_;
};

}  // namespace moeflux::serve
