// Keeps ThreadSanitizer from judging Rust, whose atomics it does not see.
#pragma once

#include "base/sanitizers.h"

#if defined(MF_THREAD_SANITIZER)
// Declared here because only builds with ThreadSanitizer have its headers.
extern "C" {
void __tsan_ignore_thread_begin();
void __tsan_ignore_thread_end();
}
#endif

namespace moeflux {

/// While one lives, ThreadSanitizer disregards what this thread reads and writes. For calls of
/// Rust: the sanitizer sees memcpy, malloc and free there, but no atomic that orders them, and
/// takes a value that came through a channel for a race. Without the sanitizer it does nothing.
class Uninstrumented {
 public:
#if defined(MF_THREAD_SANITIZER)
  Uninstrumented() { __tsan_ignore_thread_begin(); }
  ~Uninstrumented() { __tsan_ignore_thread_end(); }
#else
  Uninstrumented() {}
  ~Uninstrumented() {}
#endif
  Uninstrumented(const Uninstrumented&) = delete;
  Uninstrumented& operator=(const Uninstrumented&) = delete;
};

}  // namespace moeflux
