// A stack of its own that a function runs on and can pause from: the threads of an emulated group.
// A few instructions a switch where we know the processor, ucontext elsewhere and under sanitizers,
// which are told about every switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace moeflux::gpu::emulator {

/// Not movable once started. Runs on the thread that resumes it. A paused fiber may be dropped or
/// started anew; nothing on its stack is destroyed.
class Fiber {
 public:
  /// Where fibers return to that pause: who resumed the first of a chain of them. One thread's.
  struct Outside {
    void* stack_pointer = nullptr;
  };

  /// `outside`: of all fibers that hand over to each other; must outlive them.
  explicit Fiber(Outside& outside);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Readies entry(argument) to run at the next resume(). It must end with finish().
  void start(void (*entry)(void*), void* argument);
  /// Runs the fiber until it pauses or finishes. Called from outside.
  void resume();
  /// Returns to whoever resumed. Called from inside.
  void pause();
  /// Pauses, and another fiber that may be resumed goes on in its place. Where switches are
  /// ucontext's it is pause(): whoever resumed then finds that the other has not run.
  void hand_over(Fiber& next);
  /// Like pause(), for good.
  [[noreturn]] void finish();

  struct Context;

 private:
  std::unique_ptr<Context> context_;
};

}  // namespace moeflux::gpu::emulator
