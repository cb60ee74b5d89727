// BlockingSource: how a thread reads one chunk. The part in which direct and pread differ.
#pragma once

#include <memory>

#include "io/aligned_read.h"
#include "io/read_result_filter.h"
#include "io/read_scheduler.h"

namespace moeflux {

/// Thread-safe.
class BlockingSource {
 public:
  virtual ~BlockingSource() = default;
  /// Fills chunk.into. `bounce` is the calling thread's.
  virtual Status read(const ReadChunk& chunk, BounceBuffer& bounce) = 0;
};

struct SystemSourceOptions {
  /// Past the page cache, for files and filesystems that can.
  bool direct = false;
  /// Pages that were read through the page cache leave it again: our own cache keeps the only copy.
  bool drop_cache = false;
  ReadResultFilter* filter = nullptr;
};

/// preadv; File::read_at for files without a descriptor.
std::unique_ptr<BlockingSource> make_system_source(const SystemSourceOptions& options);

/// An AsyncReader of `threads` threads that read chunks with `source`. Without threads, wait() and
/// poll() read.
struct ThreadReaderOptions {
  std::string_view name;  // a literal
  int threads = 1;
  ReadSchedulerOptions scheduler;
};
std::unique_ptr<AsyncReader> make_thread_reader(const ThreadReaderOptions& options,
                                                std::unique_ptr<BlockingSource> source);

}  // namespace moeflux
