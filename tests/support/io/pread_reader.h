// The portable reader with as many threads as a test wants: whole requests through the page cache.
#pragma once

#include <memory>

#include "io/blocking_source.h"

namespace moeflux {

inline std::unique_ptr<AsyncReader> make_pread_reader(int threads) {
  return make_thread_reader({.name = "pread", .threads = threads}, make_system_source({}));
}

}  // namespace moeflux
