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
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Readies entry(argument) to run at the next resume(). It must end with finish().
  void start(void (*entry)(void*), void* argument);
  /// Runs the fiber until it pauses or finishes. Called from outside.
  void resume();
  /// Returns to whoever resumed. Called from inside.
  void pause();
  /// Like pause(), for good.
  [[noreturn]] void finish();

  struct Context;

 private:
  std::unique_ptr<Context> context_;
};

}  // namespace moeflux::gpu::emulator
