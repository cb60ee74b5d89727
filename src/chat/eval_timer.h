// Counts the tokens and the time of one evaluation, callbacks left out, and makes both known while
// it runs.
#pragma once

#include <atomic>
#include <cstdint>

#include "chat/open_model.h"
#include "engine/sequence.h"

namespace moeflux {

/// Publishes to the model's counters, and the sequence's length to `position`, before each callback
/// and at the end. For the call whose turn it is.
class EvalTimer {
 public:
  EvalTimer(OpenModel& model, const Sequence& sequence, std::atomic<int64_t>& position);
  ~EvalTimer();
  EvalTimer(const EvalTimer&) = delete;
  EvalTimer& operator=(const EvalTimer&) = delete;

  /// Calls a callback while the clock stands still.
  template <typename Callback>
  auto outside(Callback&& callback) {
    publish();
    const auto begin = now_us();
    auto result = callback();
    paused_us_ += now_us() - begin;
    return result;
  }
  double elapsed_seconds() const { return static_cast<double>(elapsed_us()) * 1e-6; }

 private:
  static uint64_t now_us();
  uint64_t elapsed_us() const { return now_us() - begin_us_ - paused_us_; }
  void publish();

  OpenModel& model_;
  const Sequence& sequence_;
  std::atomic<int64_t>& position_;
  int64_t published_length_;
  uint64_t published_us_ = 0;
  uint64_t begin_us_;
  uint64_t paused_us_ = 0;
};

}  // namespace moeflux
