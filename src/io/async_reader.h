// AsyncReader: many positional reads in flight. The caller owns the bytes until the read has
// completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "io/file.h"

namespace moeflux {

struct ReadRequest {
  const File* file = nullptr;  // outlives the read
  uint64_t offset = 0;
  std::span<std::byte> into;
  uint64_t tag = 0;  // returned with the completion; several requests may share one
};

struct ReadCompletion {
  uint64_t tag = 0;
  Status status;  // ok: every byte of `into` has arrived
};

/// One thread submits and collects; the reads themselves may run on others.
class AsyncReader {
 public:
  /// Implementations finish or abandon reads in flight first: no byte is written after the
  /// destructor.
  virtual ~AsyncReader() = default;

  /// Queues the requests in order. Never blocks on the device and never fails; failures arrive as
  /// completions.
  virtual void submit(std::span<const ReadRequest> requests) = 0;
  /// Blocks until at least one read has completed, then returns all that have, in any order.
  /// Must not be called with nothing in flight.
  virtual std::vector<ReadCompletion> wait() = 0;
  /// Submitted and not yet returned by wait().
  virtual size_t in_flight() const = 0;
};

/// Reads with pread on `threads` threads of its own (at least 1).
std::unique_ptr<AsyncReader> make_pread_reader(int threads);

}  // namespace moeflux
