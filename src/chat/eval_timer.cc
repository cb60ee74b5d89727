#include "chat/eval_timer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace moeflux {

uint64_t EvalTimer::now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

EvalTimer::EvalTimer(OpenModel& model, const Sequence& sequence, std::atomic<int64_t>& position)
    : model_(model),
      sequence_(sequence),
      position_(position),
      published_length_(sequence.length()),
      begin_us_(now_us()) {}

EvalTimer::~EvalTimer() { publish(); }

void EvalTimer::publish() {
  const int64_t length = sequence_.length();
  const int64_t tokens = std::max<int64_t>(0, length - std::exchange(published_length_, length));
  const uint64_t elapsed = elapsed_us();
  const uint64_t us = elapsed - std::exchange(published_us_, elapsed);
  position_ = length;
  model_.publish(static_cast<uint64_t>(tokens), us);
}

}  // namespace moeflux
