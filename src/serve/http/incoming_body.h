// A body on its way in: its share of the room that all have, and whether it comes fast enough.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "serve/http/handler_lanes.h"
#include "serve/http/http_server.h"

namespace moeflux::serve {

class IncomingBody {
 public:
  using Time = std::chrono::steady_clock::time_point;

  IncomingBody(const HttpLimits& limits, std::atomic<size_t>& all, Time now)
      : limits_(limits),
        share_(std::make_unique<BodyShare>(all)),
        begin_(now),
        window_begin_(now) {}

  /// False where there is no room for so many bytes more.
  bool add(size_t bytes) {
    window_bytes_ += bytes;
    return share_->add(bytes) <= limits_.bodies_bytes;
  }
  /// When to look whether it is slow.
  Time deadline() const {
    return std::min(begin_ + limits_.body_time, window_begin_ + limits_.body_window);
  }
  /// At a deadline: it has taken too long. Otherwise another window begins.
  bool is_slow(Time now) {
    const double seconds = std::chrono::duration<double>(now - window_begin_).count();
    const double wanted = seconds * static_cast<double>(limits_.body_bytes_per_second);
    if (now >= begin_ + limits_.body_time || static_cast<double>(window_bytes_) < wanted) {
      return true;
    }
    window_begin_ = now;
    window_bytes_ = 0;
    return false;
  }
  /// For whoever has the body then.
  std::shared_ptr<BodyShare> take_share() { return std::move(share_); }

 private:
  const HttpLimits& limits_;
  std::unique_ptr<BodyShare> share_;
  const Time begin_;
  Time window_begin_;
  size_t window_bytes_ = 0;
};

}  // namespace moeflux::serve
