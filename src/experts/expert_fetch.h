// Reads experts from storage into equal slots of memory: one blob or several extents each, checked
// and arranged on arrival. Knows slots and files; which expert deserves a slot is decided
// elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "experts/arrival_check.h"
#include "experts/drive_load.h"
#include "experts/expert_cache.h"
#include "experts/expert_table.h"
#include "io/async_reader.h"

namespace moeflux {

/// Thread-compatible: the engine's thread. References must outlive it. Its destructor waits for
/// what is in flight, which writes into slots.
class ExpertFetch {
 public:
  struct Arrival {
    ExpertKey key;
    ExpertCache::Slot slot{};
    Status status;  // unless ok, the slot's bytes are worthless; names layer and expert
  };

  struct Options {
    std::span<std::byte> memory;  // of all slots
    size_t slot_bytes = 0;        // at least table.slot_bytes_max()
    /// Compare experts of a pack with their checksums when they first arrive.
    bool check_arrivals = true;
  };
  ExpertFetch(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
              const Options& options);
  ~ExpertFetch();
  ExpertFetch(const ExpertFetch&) = delete;
  ExpertFetch& operator=(const ExpertFetch&) = delete;

  /// Starts reading the expert into its slot, which nobody touches until it arrives. Extents that
  /// lie together in file and slot are one read. Where memory runs out, nothing has been started.
  void start(ExpertKey key, ExpertCache::Slot slot, ReadPriority priority);
  /// A guess that came true is waited for: what has not begun of it goes first now.
  void promote(ExpertCache::Slot slot) { reader_.promote(static_cast<uint64_t>(slot)); }

  /// Gives up what has not begun; it arrives as kCancelled.
  void cancel(ExpertCache::Slot slot) { reader_.cancel(static_cast<uint64_t>(slot)); }

  /// Blocks until something has arrived; at least one expert must be in flight.
  std::vector<Arrival> wait();
  /// The experts that have arrived, perhaps none. Keeps the reader busy while the caller computes.
  std::vector<Arrival> poll();

  size_t in_flight() const { return in_flight_; }
  bool is_in_flight(ExpertCache::Slot slot) const { return at(slot).reads_left > 0; }
  uint64_t bytes_read() const { return bytes_read_; }
  /// Intervals with something in flight, until its arrival was noticed.
  uint64_t busy_us() const { return busy_us_; }
  /// Called for each such interval whose end was waited for: its length is the drive's.
  void measure(DriveMeter* meter) { meter_ = meter; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Loading {
    ExpertKey key;
    size_t reads_left = 0;
    Status status;  // the first failure
  };

  Loading& at(ExpertCache::Slot slot) { return loading_[static_cast<size_t>(slot)]; }
  const Loading& at(ExpertCache::Slot slot) const { return loading_[static_cast<size_t>(slot)]; }
  /// The layer's part of the slot.
  std::span<std::byte> bytes_of(ExpertCache::Slot slot, const ExpertLayer& layer) const {
    return options_.memory.subspan(static_cast<size_t>(slot) * options_.slot_bytes,
                                   layer.slot_bytes);
  }
  void finish(std::vector<ReadCompletion> completions, std::vector<Arrival>& arrivals);
  void finish_slot(ExpertCache::Slot slot, std::vector<Arrival>& arrivals);
  Clock::duration end_busy();

  const ExpertTable& table_;
  const TensorIndex& files_;
  AsyncReader& reader_;
  Options options_;
  ArrivalCheck arrivals_;
  std::vector<std::byte> arrange_scratch_;
  std::vector<Loading> loading_;  // by slot
  std::vector<ReadRequest> requests_;
  size_t in_flight_ = 0;
  uint64_t bytes_read_ = 0;
  Clock::time_point busy_since_;
  uint64_t bytes_before_busy_ = 0;
  uint64_t busy_us_ = 0;
  DriveMeter* meter_ = nullptr;
};

}  // namespace moeflux
