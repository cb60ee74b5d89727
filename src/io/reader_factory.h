// Makes an AsyncReader: the one named on the command line, or the best this machine has.
#pragma once

#include <memory>
#include <string_view>

#include "base/units.h"
#include "io/async_reader.h"
#include "io/read_result_filter.h"

namespace moeflux {

enum class IoMode : uint8_t {
  kAuto,    // uring where the build and the kernel have it, else direct
  kUring,   // io_uring; past the page cache; no thread
  kDirect,  // preadv on threads; past the page cache
  kPread    // preadv on threads, through the page cache
};

/// "auto", "uring", "direct", "pread".
std::string_view io_mode_name(IoMode mode);
/// Fails with kInvalidArgument, naming the modes there are.
Result<IoMode> parse_io_mode(std::string_view text);

struct ReaderOptions {
  /// Threads of direct and pread: as many commands are in flight. At least 1.
  int threads = 8;
  /// Commands in flight of uring. At least 1.
  int depth = 32;
  /// How many of these (or of the threads) may be speculative: at most a quarter, 0 for a quarter.
  int speculative_depth = 0;
  /// Largest command. A multiple of kDirectAlignment.
  size_t chunk_bytes = 512 * kKiB;
  /// Bytes that had to be read through the page cache (by pread, or where direct reads are refused)
  /// leave it again.
  bool drop_cache = true;
  ReadResultFilter* filter = nullptr;  // for tests; outlives the reader
};

/// kUring fails with kUnsupported where the build or the kernel has no io_uring; the others cannot
/// fail but for options out of range. Files whose filesystem refuses direct reads are read through
/// the page cache, file by file. `name()` of the reader tells what kAuto became.
Result<std::unique_ptr<AsyncReader>> make_reader(IoMode mode, const ReaderOptions& options);

}  // namespace moeflux
