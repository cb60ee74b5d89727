// MF_CHECK: an invariant that only a bug of ours can break. Never used on data from outside.
#pragma once

namespace moeflux {
/// Prints the broken invariant with its place and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace moeflux

#define MF_CHECK(condition)                                    \
  do {                                                         \
    if (!(condition)) [[unlikely]]                             \
      ::moeflux::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
