// StepGuard: what happens to a state and to recorded work when a step does not end well.
#pragma once

#include <new>

#include "backend/encoder.h"

namespace moeflux {

/// A state is broken from the beginning of a step to its end, so that it stays so however the step
/// ends otherwise: with an error, or with memory that ran out. Recorded work may still use the
/// state, which its owner may replace afterwards; that work has run when the guard goes.
class StepGuard {
 public:
  StepGuard(bool& broken, Encoder& encoder) : broken_(broken), encoder_(encoder) { broken_ = true; }
  ~StepGuard() {
    if (!broken_) return;
    try {
      (void)encoder_.wait(encoder_.submit());
    } catch (const std::bad_alloc&) {
      // The encoder's next submission hands over what is left.
    }
  }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;
  void leaves_whole() { broken_ = false; }

 private:
  bool& broken_;
  Encoder& encoder_;
};

}  // namespace moeflux
