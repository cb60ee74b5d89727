// Reads experts from storage into equal slots of memory: one blob or several extents each, checked
// and arranged on arrival. Experts that are arranged land in memory apart, which passes from one to
// the next. Knows slots and files; which expert deserves a slot is decided elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "checkpoint/tensor_index.h"
#include "experts/cache/expert_cache.h"
#include "experts/drive/arrival_check.h"
#include "experts/drive/drive_load.h"
#include "experts/expert_arrangement.h"
#include "experts/expert_table.h"
#include "io/aligned_read.h"
#include "io/async_reader.h"

namespace moeflux {

/// Runs fn(0) to fn(count - 1), perhaps at once on several threads, and returns when all have run.
using HostTasks = std::function<void(int64_t count, const std::function<void(int64_t)>& fn)>;
/// One after another.
void run_in_turn(int64_t count, const std::function<void(int64_t)>& fn);

/// Memory for experts that land apart from their slots, for all of a table's layers.
uint64_t landing_memory_bytes(const ExpertTable& table);

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
    /// Room for experts to land, of which two are there in any case: 60 ms of a drive of 2 GB/s.
    uint64_t landing_bytes = 128 * kMiB;
  };
  ExpertFetch(const ExpertTable& table, const TensorIndex& files, AsyncReader& reader,
              const Options& options);
  ~ExpertFetch();
  ExpertFetch(const ExpertFetch&) = delete;
  ExpertFetch& operator=(const ExpertFetch&) = delete;

  /// Starts reading the expert into its slot, which nobody touches until it arrives; an expert that
  /// lands apart begins once there is room to land. Extents that lie together in file and memory
  /// are one read. Where memory runs out, nothing has been started.
  void start(ExpertKey key, ExpertCache::Slot slot, ReadPriority priority);
  /// A guess that came true is waited for: what has not begun of it goes first now.
  void promote(ExpertCache::Slot slot);
  /// Gives up what has not begun; it arrives as kCancelled.
  void cancel(ExpertCache::Slot slot);

  /// Blocks until something has arrived; at least one expert must be in flight. `tasks` arrange
  /// what has.
  std::vector<Arrival> wait(const HostTasks& tasks = run_in_turn);
  /// The experts that have arrived, perhaps none. Keeps the reader busy while the caller computes.
  std::vector<Arrival> poll(const HostTasks& tasks = run_in_turn);

  size_t in_flight() const { return in_flight_; }
  bool is_in_flight(ExpertCache::Slot slot) const { return at(slot).is_in_flight; }
  /// Where experts land that are arranged; empty where none are. For register_buffers().
  std::span<std::byte> landing_memory() const { return {landing_begin_, landing_size_}; }
  uint64_t bytes_read() const { return bytes_read_; }
  /// Intervals with something in flight, until its arrival was noticed.
  uint64_t busy_us() const { return busy_us_; }
  /// Called for each such interval whose end was waited for: its length is the drive's.
  void measure(DriveMeter* meter) { meter_ = meter; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Loading {
    ExpertKey key;
    bool is_in_flight = false;
    ReadPriority priority = ReadPriority::kDemand;
    size_t reads_left = 0;
    std::byte* landing = nullptr;  // null: read into the slot
    Status status;                 // the first failure
  };

  Loading& at(ExpertCache::Slot slot) { return loading_[static_cast<size_t>(slot)]; }
  const Loading& at(ExpertCache::Slot slot) const { return loading_[static_cast<size_t>(slot)]; }
  /// The layer's part of the slot.
  std::span<std::byte> bytes_of(ExpertCache::Slot slot, const ExpertLayer& layer) const {
    return options_.memory.subspan(static_cast<size_t>(slot) * options_.slot_bytes,
                                   layer.slot_bytes);
  }
  /// Where the bytes of an expert on its way arrive.
  LandedExpert arriving(ExpertCache::Slot slot, const Loading& loading) const;
  void list_requests(ExpertCache::Slot slot, const Loading& loading);
  void begin_waiting();
  std::vector<Arrival> collect(std::vector<ReadCompletion> completions, const HostTasks& tasks);
  void check(ExpertCache::Slot slot);
  void arrange_whole(const HostTasks& tasks);
  Arrival arrival_of(ExpertCache::Slot slot);
  Clock::duration end_busy();

  const ExpertTable& table_;
  const TensorIndex& files_;
  AsyncReader& reader_;
  Options options_;
  ArrivalCheck arrivals_;
  std::vector<Loading> loading_;  // by slot
  std::vector<ReadRequest> requests_;
  size_t landing_size_ = 0;
  BounceBuffer landing_;
  std::byte* landing_begin_ = nullptr;
  std::vector<std::byte*> free_landings_;
  std::vector<ExpertCache::Slot> waiting_;  // for room to land, in order
  std::vector<ExpertCache::Slot> whole_;    // nothing more to read of them
  size_t in_flight_ = 0;
  uint64_t bytes_read_ = 0;
  Clock::time_point busy_since_;
  uint64_t bytes_before_busy_ = 0;
  uint64_t busy_us_ = 0;
  DriveMeter* meter_ = nullptr;
};

/// Reads every expert of the table, layer by layer, into the slots that `slot_of` names, and gives
/// each to `arrived` before it asks for one more than `most`. Ends with the first failure.
Status fetch_all(const ExpertTable& table, ExpertFetch& fetch, size_t most,
                 const std::function<ExpertCache::Slot(ExpertKey)>& slot_of,
                 const std::function<Status(const ExpertFetch::Arrival&)>& arrived);

}  // namespace moeflux
