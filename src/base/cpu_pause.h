// A pause between two looks at memory that another thread is about to write.
#pragma once

namespace moeflux {

/// Leaves the core to its other hardware thread for a few dozen cycles, where it has one.
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace moeflux
