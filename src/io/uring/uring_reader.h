// AsyncReader over io_uring. Behind io/reader_factory.h.
#pragma once

#include "io/read_result_filter.h"
#include "io/read_scheduler.h"

namespace moeflux {

/// A place where tests let io_uring_enter fail.
class UringEntryFilter {
 public:
  virtual ~UringEntryFilter() = default;
  /// 0: the kernel is entered. Else it is not, and this is the errno that the reader shall see.
  virtual int refuse() = 0;
};

struct UringReaderOptions {
  ReadSchedulerOptions scheduler;
  bool drop_cache = false;
  ReadResultFilter* filter = nullptr;
  UringEntryFilter* entry_filter = nullptr;
};

/// Fails with kUnsupported where there is no io_uring: not built in, an old kernel, or forbidden,
/// as in many containers.
Result<std::unique_ptr<AsyncReader>> make_uring_reader(const UringReaderOptions& options);

}  // namespace moeflux
