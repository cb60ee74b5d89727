// FaultyReader: an AsyncReader that does everything a reader may do and callers must survive.
// Deterministic: the same seed and the same calls give the same completions in the same order,
// whatever the threads of an inner reader did. Nothing depends on time.
//
// `into` is always filled with 0xA5 on submission, so that bytes used before their completion are
// wrong bytes. Pieces of a read arrive in any order and completion comes after the last. Short
// reads and their retries are invisible, as the interface promises. cancel() finds a read begun or
// not as the seed has it.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "io/async_reader.h"

namespace moeflux {

struct FaultyReaderOptions {
  uint64_t seed = 1;
  /// Completions that are ready together are returned in random order.
  bool reorder = true;
  /// A read stays behind for a random number of wait() calls, 0 to this many, unless nothing else
  /// could be returned: wait() always returns something.
  int delay_waits_max = 0;
  /// One wait() returns at most this many; 0 for all that are ready.
  size_t completions_per_wait_max = 0;
  /// Each read fails with kIo with this probability.
  double failure_probability = 0;
  /// These reads fail with kIo: numbers in order of submission, the first read is 0.
  std::vector<uint64_t> failing_reads;
  /// Largest piece that arrives at once, in bytes; 0 for whole reads. Without an inner reader only.
  size_t piece_bytes_max = 0;
};

/// Like every AsyncReader, for one thread.
class FaultyReader final : public AsyncReader {
 public:
  /// Reads from the requests' files, inside wait().
  explicit FaultyReader(FaultyReaderOptions options) : FaultyReader(std::move(options), nullptr) {}
  /// Reads through `inner`; a read that is to fail never reaches it.
  FaultyReader(FaultyReaderOptions options, std::unique_ptr<AsyncReader> inner);

  std::string_view name() const override { return "faulty"; }
  void submit(std::span<const ReadRequest> requests) override;
  std::vector<ReadCompletion> wait() override;
  /// Counts as a wait for the reads that stay behind, but may return nothing.
  std::vector<ReadCompletion> poll() override;
  size_t in_flight() const override { return pending_.size(); }
  /// Promoted reads stay behind no longer.
  size_t promote(uint64_t tag) override;
  size_t cancel(uint64_t tag) override;

  uint64_t reads_submitted() const { return reads_submitted_; }
  uint64_t reads_failed() const { return reads_failed_; }

 private:
  struct Pending {
    ReadRequest request;
    uint64_t number = 0;
    int delay_waits = 0;
    bool fails = false;
    bool cancelled = false;
    Status inner_status;
  };

  uint64_t draw(uint64_t bound) { return random_() % bound; }
  bool decide_failure(uint64_t number);
  void drain_inner();
  std::vector<ReadCompletion> deliver(int waits_passed);
  ReadCompletion complete(const Pending& read);
  Status read_in_pieces(const ReadRequest& request);

  FaultyReaderOptions options_;
  std::mt19937_64 random_;       // its sequence is fixed by the standard, unlike the distributions'
  std::deque<Pending> pending_;  // in order of submission
  uint64_t reads_submitted_ = 0;
  uint64_t reads_failed_ = 0;
  std::unique_ptr<AsyncReader> inner_;  // last: destroyed first, while `into` is still ours
};

}  // namespace moeflux
