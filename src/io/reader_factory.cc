#include "io/reader_factory.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "io/blocking_source.h"
#include "io/uring/uring_reader.h"

namespace moeflux {
namespace {

constexpr std::array kModes = {IoMode::kAuto, IoMode::kUring, IoMode::kDirect, IoMode::kPread};

Status check(const ReaderOptions& options) {
  if (options.threads < 1 || options.threads > 256) {
    return make_error(ErrorCode::kInvalidArgument, "{} reader threads, expected 1 to 256",
                      options.threads);
  }
  if (options.depth < 1 || options.depth > 4096) {
    return make_error(ErrorCode::kInvalidArgument, "{} reads in flight, expected 1 to 4096",
                      options.depth);
  }
  if (options.chunk_bytes == 0 || options.chunk_bytes % kDirectAlignment != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "read chunks of {} bytes, expected a multiple of {}", options.chunk_bytes,
                      kDirectAlignment);
  }
  return {};
}

ReadSchedulerOptions scheduling(const ReaderOptions& options, int depth) {
  const int quarter = std::max(1, depth / 4);
  const int speculative =
      options.speculative_depth > 0 ? std::min(options.speculative_depth, quarter) : quarter;
  return {.chunk_bytes = options.chunk_bytes,
          .depth = static_cast<size_t>(depth),
          .speculative_depth = static_cast<size_t>(speculative)};
}

std::unique_ptr<AsyncReader> make_threaded(const ReaderOptions& options, bool direct) {
  return make_thread_reader(
      {.name = direct ? "direct" : "pread",
       .threads = options.threads,
       .scheduler = scheduling(options, options.threads)},
      make_system_source(
          {.direct = direct, .drop_cache = options.drop_cache, .filter = options.filter}));
}

Result<std::unique_ptr<AsyncReader>> make_uring(const ReaderOptions& options) {
  return make_uring_reader({.scheduler = scheduling(options, options.depth),
                            .drop_cache = options.drop_cache,
                            .filter = options.filter});
}

}  // namespace

std::string_view io_mode_name(IoMode mode) {
  switch (mode) {
    case IoMode::kAuto:
      return "auto";
    case IoMode::kUring:
      return "uring";
    case IoMode::kDirect:
      return "direct";
    case IoMode::kPread:
      return "pread";
  }
  __builtin_unreachable();
}

Result<IoMode> parse_io_mode(std::string_view text) {
  for (const IoMode mode : kModes) {
    if (io_mode_name(mode) == text) return mode;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "I/O mode '{}', expected auto, uring, direct or pread", text);
}

Result<std::unique_ptr<AsyncReader>> make_reader(IoMode mode, const ReaderOptions& options) {
  MF_RETURN_IF_ERROR(check(options));
  switch (mode) {
    case IoMode::kAuto: {
      Result<std::unique_ptr<AsyncReader>> uring = make_uring(options);
      if (uring.ok()) return uring;
      return make_threaded(options, /*direct=*/true);
    }
    case IoMode::kUring:
      return make_uring(options);
    case IoMode::kDirect:
      return make_threaded(options, /*direct=*/true);
    case IoMode::kPread:
      return make_threaded(options, /*direct=*/false);
  }
  __builtin_unreachable();
}

}  // namespace moeflux
