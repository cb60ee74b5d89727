// The threads that call the handler, in three lanes, so that nobody's short request waits for a
// long one and requests answered at once wait for none.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "serve/kept/job_thread.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

/// Longer bodies have a lane of their own.
inline constexpr size_t kShortBodyBytes = size_t{64} << 10;

/// One request's share of the room for bodies.
class BodyShare {
 public:
  explicit BodyShare(std::atomic<size_t>& all) : all_(all) {}
  ~BodyShare() { all_ -= mine_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  /// How much all hold then.
  size_t add(size_t bytes) {
    mine_ += bytes;
    return all_ += bytes;
  }

 private:
  std::atomic<size_t>& all_;
  size_t mine_ = 0;
};

/// Thread-safe. The destructor waits for calls that have begun; of the rest only those are made
/// whose peer is still there.
class HandlerLanes {
 public:
  /// `is_at_once`, or null for none: requests that are answered from memory, without computing.
  HandlerLanes(Handler handler, std::function<bool(const Request&)> is_at_once);

  /// Calls the handler some time, on a thread of the request's lane. `share` lasts as long.
  void handle(Request request, std::shared_ptr<Response> response,
              std::shared_ptr<BodyShare> share);
  /// A call has not returned.
  bool is_handling() const { return handling_ > 0; }

 private:
  const Handler handler_;
  const std::function<bool(const Request&)> is_at_once_;
  std::atomic<int> handling_ = 0;
  JobThread at_once_;
  JobThread short_{2};
  JobThread long_{2};  // on two cores a third would only share what two have
};

}  // namespace moeflux::serve
