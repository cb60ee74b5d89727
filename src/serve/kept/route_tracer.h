// A recording of all texts' routes, begun and ended by an administrator: a trace in memory, within
// limits of bytes and time.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "experts/routes/route_trace.h"

namespace moeflux::serve {

struct TraceLimits {
  size_t bytes_max = size_t{16} << 20;
  std::chrono::seconds time_max{600};
};

struct TraceStatus {
  bool is_recording = false;
  bool is_full = false;  // bytes or time were over: what followed is not recorded
  size_t bytes = 0;
  double seconds = 0.0;
  std::string model = {};  // empty: nothing was recorded
};

/// Thread-safe. Must outlive the observers that it gives.
class RouteTracer {
 public:
  /// The observer to give to the model's scheduler, which lives until the recording ends; null
  /// while one records.
  std::weak_ptr<RouteObserver> start(const std::string& model, const RouteTraceHeader& header,
                                     const TraceLimits& limits);
  /// The recorded trace stays until the next start.
  void stop();
  TraceStatus status();
  /// The recorded trace; empty where there is none, or one is being recorded.
  std::string text();

 private:
  using Clock = std::chrono::steady_clock;
  class Recording;

  void end_when_over();

  std::mutex mutex_;  // guards what follows
  std::shared_ptr<Recording> recording_;
  TraceLimits limits_;
  TraceStatus status_;
  std::string text_;
  Clock::time_point begin_;
};

}  // namespace moeflux::serve
