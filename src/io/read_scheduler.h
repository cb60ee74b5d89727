// ReadScheduler: cuts requests into chunks and decides which starts next. Every reader keeps its
// books with one. Knows order and counts; does no I/O, takes no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "io/async_reader.h"

namespace moeflux {

struct ReadSchedulerOptions {
  /// Largest chunk; requests are cut into equal ones. At least kDirectAlignment.
  size_t chunk_bytes = SIZE_MAX;
  /// Chunks started and not finished, in all and of speculative reads. At least 1.
  size_t depth = SIZE_MAX;
  size_t speculative_depth = SIZE_MAX;
};

struct ReadChunk {
  const File* file = nullptr;
  uint64_t offset = 0;
  std::span<std::byte> into;
  size_t request = 0;                             // the scheduler's own
  ReadPriority priority = ReadPriority::kDemand;  // as it started
};

/// Whether the chunk lay inside its file when that was opened.
inline bool lies_inside(const ReadChunk& chunk) {
  const uint64_t size = chunk.file->size_bytes();
  return chunk.into.size() <= size && chunk.offset <= size - chunk.into.size();
}

class ReadScheduler {
 public:
  explicit ReadScheduler(const ReadSchedulerOptions& options);

  /// Takes the memory for so many more requests: until they have been taken, nothing but the text
  /// of an error asks for any. A reader that begins with this takes all requests or, when memory
  /// runs out, none.
  void reserve(size_t requests);
  /// An empty request completes at once.
  void add(const ReadRequest& request);
  /// The chunk to start now, or none while the depth is used up or nothing is queued.
  std::optional<ReadChunk> next();
  /// Ends a chunk that next() gave. A request completes with its last chunk, or with its first
  /// failure once those that had started are over.
  void finish(const ReadChunk& chunk, Status status);

  size_t promote(uint64_t tag);
  size_t cancel(uint64_t tag);
  /// Forgets every chunk that has not started, without completions. For destructors.
  void abandon();

  bool has_completed() const { return !completed_.empty(); }
  std::vector<ReadCompletion> take_completed();
  /// Requests added and not yet taken.
  size_t in_flight() const { return in_flight_; }
  size_t chunks_started() const { return chunks_started_; }

 private:
  struct Request {
    ReadRequest asked;
    size_t done = 0;            // bytes given out as chunks
    size_t chunk_bytes = 0;     // of this request
    size_t chunks_started = 0;  // and not finished
    Status status;
  };

  std::vector<size_t>& queue_of(ReadPriority priority) {
    return priority == ReadPriority::kDemand ? demand_ : speculative_;
  }
  ReadChunk cut(size_t id);
  void complete(size_t id);

  ReadSchedulerOptions options_;
  std::vector<Request> requests_;  // by id
  std::vector<size_t> free_ids_;
  std::vector<size_t> demand_;  // requests with chunks to start, the next one first
  std::vector<size_t> speculative_;
  std::vector<ReadCompletion> completed_;
  size_t in_flight_ = 0;
  size_t chunks_started_ = 0;
  size_t speculative_started_ = 0;
};

}  // namespace moeflux
