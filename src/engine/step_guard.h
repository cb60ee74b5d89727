// StepGuard: what happens to recorded work when a step does not end well.
#pragma once

#include <new>

#include "backend/encoder.h"

namespace moeflux {

/// However a step ends, with an error or with memory that ran out, what has been recorded may still
/// use states that their owners are free to replace: it has run when the guard goes.
class StepGuard {
 public:
  explicit StepGuard(Encoder& encoder) : encoder_(encoder) {}
  ~StepGuard() {
    if (has_run_) return;
    try {
      (void)encoder_.wait(encoder_.submit());
    } catch (const std::bad_alloc&) {
      // The encoder's next submission hands over what is left.
    }
  }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;
  /// Nothing recorded uses a state any more.
  void has_run() { has_run_ = true; }

 private:
  Encoder& encoder_;
  bool has_run_ = false;
};

}  // namespace moeflux
