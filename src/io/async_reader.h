// AsyncReader: many positional reads in flight. The caller owns the bytes until the read has
// completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file.h"

namespace moeflux {

/// No speculative read starts while a demand read is queued, and only a part of the reader's depth
/// is ever given to speculation, so that a demand read finds room.
enum class ReadPriority : uint8_t { kDemand, kSpeculative };

struct ReadRequest {
  const File* file = nullptr;  // outlives the read
  /// Offset, size and address are free. Direct readers copy nothing when all three are multiples of
  /// kDirectAlignment, little (the edges) when offset and address are equal modulo it, else all.
  uint64_t offset = 0;
  std::span<std::byte> into;
  uint64_t tag = 0;  // returned with the completion; several requests may share one
  ReadPriority priority = ReadPriority::kDemand;
};

struct ReadCompletion {
  uint64_t tag = 0;
  /// ok: every byte of `into` has arrived. kCancelled: by cancel(). kIo names the file, the offset,
  /// what was found and what was expected. Unless ok, `into` may hold anything.
  Status status;
};

/// Alignment that O_DIRECT asks of offsets, sizes and addresses: the page, a multiple of any
/// drive's sector.
constexpr size_t kDirectAlignment = 4096;

/// One thread submits and collects; the reads themselves may run on others. Every request gets
/// exactly one completion.
class AsyncReader {
 public:
  /// Implementations finish or abandon reads in flight first: no byte is written after the
  /// destructor.
  virtual ~AsyncReader() = default;

  /// "uring", "direct", "pread"; for logs.
  virtual std::string_view name() const = 0;

  /// Queues the requests in order. Never blocks on the device and never fails; failures arrive as
  /// completions.
  virtual void submit(std::span<const ReadRequest> requests) = 0;
  /// Blocks until at least one read has completed, then returns all that have, in any order.
  /// Must not be called with nothing in flight.
  virtual std::vector<ReadCompletion> wait() = 0;
  /// The completed reads, perhaps none, without waiting for a device. Keeps readers busy that have
  /// no thread of their own: what exceeds their depth starts here. A reader that can only read
  /// synchronously (without threads, files without a descriptor) reads one piece.
  virtual std::vector<ReadCompletion> poll() = 0;
  /// Submitted and not yet returned by wait() or poll().
  virtual size_t in_flight() const = 0;

  /// Speculative reads of this tag that have not begun become demand, behind the demand reads
  /// already queued. Returns how many reads changed.
  virtual size_t promote(uint64_t tag) = 0;
  /// Reads of this tag that have not begun complete with kCancelled; the others go on. Returns how
  /// many were cancelled.
  virtual size_t cancel(uint64_t tag) = 0;

  /// Tells where reads will go, replacing what was told before; called with nothing in flight. The
  /// regions must stay mapped until the reader is gone or told otherwise. An optimisation: on
  /// failure (most often the limit of locked memory) reads work as before.
  virtual Status register_buffers(std::span<const std::span<std::byte>> regions) {
    (void)regions;
    return {};
  }
};

}  // namespace moeflux
