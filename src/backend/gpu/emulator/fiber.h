// A stack of its own that a function runs on and can pause from: the threads of an emulated group.
// A few instructions a switch where we know the processor, ucontext elsewhere and under sanitizers,
// which are told about every switch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/sanitizers.h"

#if defined(__ELF__) && defined(__x86_64__) && !defined(MF_ADDRESS_SANITIZER) && \
    !defined(MF_THREAD_SANITIZER)
#define MF_OWN_SWITCH 1
// Saves what a called function must preserve on the current stack, leaves its pointer in *from and
// continues where `to` was left.
extern "C" void moeflux_fiber_switch(void** from, void* to);
#endif

namespace moeflux::gpu::emulator {

/// Not movable once started. Runs on the thread that resumes it. A paused fiber may be dropped or
/// started anew; nothing on its stack is destroyed.
class Fiber {
 public:
  /// Where fibers return to that pause: who resumed the first of a chain of them. One thread's.
  struct Outside {
    void* stack_pointer = nullptr;
    size_t fibers = 0;  // so far
  };

  /// `outside`: of all fibers that hand over to each other; must outlive them.
  explicit Fiber(Outside& outside);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Readies entry(argument) to run at the next resume(). It must end with finish().
  void start(void (*entry)(void*), void* argument);
#if defined(MF_OWN_SWITCH)
  /// Runs the fiber until it pauses or finishes. Called from outside.
  void resume() { moeflux_fiber_switch(&outside_.stack_pointer, stack_pointer_); }
  /// Returns to whoever resumed. Called from inside.
  void pause() { moeflux_fiber_switch(&stack_pointer_, outside_.stack_pointer); }
  /// Pauses, and another fiber that may be resumed goes on in its place. Where switches are
  /// ucontext's it is pause(): whoever resumed then finds that the other has not run.
  void hand_over(Fiber& next) {
    // Fibers that run the same lines return from the switch to one place: processors foresee it.
    moeflux_fiber_switch(&stack_pointer_, next.stack_pointer_);
  }
#else
  void resume();
  void pause();
  void hand_over(Fiber&) { pause(); }
#endif
  /// Like pause(), for good.
  [[noreturn]] void finish();
  /// Like hand_over(), for good.
  [[noreturn]] void finish(Fiber& next);

 private:
  void* stack_pointer_ = nullptr;  // where it was left; with ucontext, its Context
  Outside& outside_;
  std::byte* stack_ = nullptr;
  size_t top_ = 0;  // in bytes of the stack
  struct Context;
  // No member of its own: objects that know another switch may share a program (MOEFLUX_SANITIZED).
  Context& context() const { return *static_cast<Context*>(stack_pointer_); }
};

}  // namespace moeflux::gpu::emulator
