// AsyncReader over io_uring. Behind io/reader_factory.h.
#pragma once

#include "io/read_result_filter.h"
#include "io/read_scheduler.h"

namespace moeflux {

struct UringReaderOptions {
  ReadSchedulerOptions scheduler;
  bool drop_cache = false;
  ReadResultFilter* filter = nullptr;
};

/// Fails with kUnsupported where there is no io_uring: not built in, an old kernel, or forbidden,
/// as in many containers.
Result<std::unique_ptr<AsyncReader>> make_uring_reader(const UringReaderOptions& options);

}  // namespace moeflux
