// One emulated group at a time: its threads as fibers, its barriers and SIMD exchanges, its shared
// memory with a record of who touched what since the last barrier. A kernel's mistake ends the
// launch with a report that names kernel, group, thread and place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/dialect/types.h"
#include "backend/gpu/emulator/copy_watch.h"
#include "backend/gpu/emulator/fiber.h"
#include "backend/gpu/launch/plan.h"
#include "base/result.h"

namespace moeflux::gpu {
struct Thread;
}

namespace moeflux::gpu::emulator {

/// A line of kernel text.
struct SourceLine {
  const char* file = "";
  int line = 0;
  static constexpr SourceLine here(const char* file = __builtin_FILE(),
                                   int line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(const SourceLine& a, const SourceLine& b) {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
  }
};

/// A bound range, or the allocation around an address from a table.
struct BoundRange {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  int32_t index = 0;                 // of the binding; -1 for memory found through an address
  bool awaits = false;               // must not be touched before the inputs are there
  WatchedMemory* watched = nullptr;  // of Launch::copies, where copies have to do with it
};

/// Memory of the platform by address; begin -> end.
using Allocations = std::map<uintptr_t, uintptr_t>;

enum class Exchange : uint8_t {
  kSum,
  kSums,
  kMax,
  kHighest,
  kLowest,
  kShuffle,
  kShuffleXor,
  kShufflesXor,
  kBallot,
  kSimdBarrier,
  kMultiply
};

/// A lane's part of a product on matrix units, as dialect/cuda.h describes it: c += a b.
struct MatrixPart {
  f32* c = nullptr;     // of numbers in f16
  i32* sums = nullptr;  // of bytes
  std::array<u32, 4> a{};
  std::array<u32, 2> b{};
  bool is_signed = false;  // bytes of a
};

class Machine;
using KernelEntry = void (*)(const Thread& thread, const std::byte* params,
                             const BoundRange* bindings);

/// Arguments of run() beside the plan.
struct Launch {
  std::string_view name;
  KernelEntry entry = nullptr;
  const Plan* plan = nullptr;
  std::array<BoundRange, Plan::kBindingsMax> bindings{};
  /// The allocations of each memory that it reaches.
  std::span<const Allocations* const> allocations{};
  CopyWatch* copies = nullptr;  // or null: nobody copies
  bool reads_early = false;     // moeflux::gpu::reads_early()
  uint64_t seed = 0;            // of the order in which groups, SIMD groups and lanes run
};

class Machine {
 public:
  /// Runs every group of the launch. Fails with the report of the first wrong thing.
  Status run(const Launch& launch);

  // --- Functions that kernels call, through the host dialect ---

  void barrier(u32 thread, SourceLine place);
  /// Exchanges with the other lanes; returns this lane's result as bits.
  static u32 exchange(const Thread& thread, Exchange op, u32 bits, u32 operand, SourceLine place);
  /// Multiplies what all lanes hold, product by product in the order of columns of a; all lanes
  /// have numbers of one kind.
  static void multiply(const Thread& thread, const MatrixPart& part, SourceLine place);
  /// Number by number, what kSum would give. All lanes have as many.
  static void sum(const Thread& thread, std::span<float> values, SourceLine place);
  /// The same of kShuffleXor.
  static void shuffle_xor(const Thread& thread, std::span<float> values, u32 mask,
                          SourceLine place);
  u32 shared_read(u32 thread, uint64_t offset_bytes) {
    SharedWord& word = checked_word(thread, offset_bytes);
    if (is_concurrent(word.write, thread)) report_race(thread, word, "reads");
    if (word.write.time < group_begin_) report_unwritten(thread, word);
    note_read(thread, word);
    return word.bits;
  }
  void shared_write(u32 thread, uint64_t offset_bytes, u32 bits) {
    SharedWord& word = checked_word(thread, offset_bytes);
    if (is_concurrent(word.write, thread) || is_concurrent(word.reads[0], thread) ||
        is_concurrent(word.reads[1], thread)) {
      report_race(thread, word, "writes");
    }
    word.write = {clock_, thread};
    word.bits = bits;
  }
  [[noreturn]] void report_early(u32 thread, const BoundRange& range);
  /// An access to memory that copies have to do with.
  void touch_watched(u32 thread, WatchedMemory& memory, uintptr_t address, size_t bytes,
                     bool writes) {
    if (launch_->copies->touch(memory, address, bytes, writes)) return;
    report_copy_race(thread, memory, address, writes);
  }
  /// Element `index` of elements of `bytes` each lies outside `range`.
  [[noreturn]] void report_bounds(u32 thread, const BoundRange& range, int64_t offset_bytes,
                                  size_t bytes);
  [[noreturn]] void report_misaligned(u32 thread, const BoundRange& range, size_t bytes);
  /// The allocation that holds `address`, as long as the launch runs; a report if there is none.
  const BoundRange& resolve(u32 thread, u64 address);

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kAtExchange, kFinished };
  struct alignas(64) Lane {
    Fiber* fiber = nullptr;  // that it runs on, once it has begun
    Lane* next = nullptr;    // of its SIMD group, in their order
    u32 index = 0;
    State state = State::kReady;  // where it stood last, unless its bit of Simd::ready is set
    Exchange op{};
    const MatrixPart* part = nullptr;
    float* values = nullptr;  // of kSums and kShufflesXor
    SourceLine place{};
  };
  /// A SIMD group: the lanes that came to an exchange since the last one, and what they brought.
  struct alignas(64) Simd {
    u32 ready = 0;          // a bit for each lane that can go on
    u32 arrived = 0;        // at an exchange
    bool is_mixed = false;  // not all at the same one
    Exchange op{};
    SourceLine place{};
    std::array<u32, kSimdLanes> bits{};
    std::array<u32, kSimdLanes> operands{};
    std::array<u32, kSimdLanes> results{};
  };
  struct Touch {
    u32 time = 0;  // by clock_
    u32 thread = 0;
  };
  /// Four bytes of shared memory with their record: one line of a cache has both.
  struct alignas(32) SharedWord {
    u32 bits = 0;
    Touch write;
    std::array<Touch, 2> reads;  // note_read() says whose
  };

  /// Runs the lane that begins, and on the same stack those behind it that have not begun.
  static void run_lanes(void* machine);
  void prepare(const Launch& launch);
  bool run_group(Extent3 group);
  bool run_round();
  Lane* first_lane(u32 simd) { return &lanes_[simd * kSimdLanes + lane_order_[0]]; }
  /// The first that is ready, from a lane on in their order; null if there is none.
  static Lane* ready_lane(const Simd& simd, Lane* lane) {
    while (lane != nullptr && (simd.ready >> lane->index % kSimdLanes & 1u) == 0) lane = lane->next;
    return lane;
  }
  void wait_at(Lane& lane, State state, SourceLine place) {
    lane.state = state;
    lane.place = place;
    simds_[lane.index / kSimdLanes].ready &= ~(1u << lane.index % kSimdLanes);
  }
  Fiber& fiber_of(Lane& lane);
  /// Leaves a lane that waits: the next one of its SIMD group that is ready goes on. Where all have
  /// come to an exchange it is made, and they go on; at barriers the SIMD group gives way.
  void leave(Lane& lane);
  bool release_barrier();
  bool complete_exchange(u32 simd);
  void exchange_all(u32 simd);
  static void sum_values(const Lane* lanes, u32 count);
  static void shuffle_values(const Lane* lanes, const Simd& simd);
  static void multiply_halves(const Lane* lanes);
  static void multiply_bytes(const Lane* lanes);
  void report_divergence();
  void shuffle(std::vector<u32>& order);
  /// Notes what went wrong; then stop() leaves the fiber for good, strings destroyed.
  void fault(u32 thread, const std::string& what);
  [[noreturn]] void stop(u32 thread);
  [[noreturn]] void report_race(u32 thread, const SharedWord& word, const char* verb);
  [[noreturn]] void report_unwritten(u32 thread, const SharedWord& word);
  [[noreturn]] void report_copy_race(u32 thread, const WatchedMemory& memory, uintptr_t address,
                                     bool writes);
  [[noreturn]] void report_shared_bounds(u32 thread, uint64_t offset_bytes);
  std::string describe(const Lane& lane) const;
  std::string where() const;
  std::string name_of(const SharedWord& word) const;

  SharedWord& checked_word(u32 thread, uint64_t offset_bytes) {
    if (offset_bytes + 4 > shared_bytes_ || offset_bytes % 4 != 0) {
      report_shared_bounds(thread, offset_bytes);
    }
    return shared_[offset_bytes / 4];
  }
  /// True when nothing orders an earlier access before what `thread` does now.
  bool is_concurrent(const Touch& touch, u32 thread) const {
    if (touch.time < barrier_ || touch.thread == thread) return false;
    const u32 simd = thread / kSimdLanes;
    return touch.thread / kSimdLanes != simd || touch.time >= simd_barriers_[simd];
  }
  /// Two reads stand for any number of them. If two SIMD groups have read, every write until the
  /// next barrier of the group is a race with one of the two reads. If one SIMD group has read, two
  /// threads of it since its last barrier stand for all: every write by another thread is a race.
  void note_read(u32 thread, SharedWord& word) const {
    auto& [first, second] = word.reads;
    const Touch read{clock_, thread};
    const u32 simd = thread / kSimdLanes;
    const u32 first_simd = first.thread / kSimdLanes;
    if (first.time < barrier_) {
      first = read;
    } else if (second.time >= barrier_ && second.thread / kSimdLanes != first_simd) {
      return;
    } else if (simd != first_simd) {
      second = read;
    } else if (first.time < simd_barriers_[simd]) {
      first = read;
    } else if (first.thread != thread) {
      second = read;
    }
  }
  /// Everything that was touched so far has an earlier time than the barrier.
  void pass_barrier() {
    barrier_ = ++clock_;
    simd_barriers_.assign(simd_barriers_.size(), barrier_);
  }

  const Launch* launch_ = nullptr;
  Extent3 group_;
  u32 threads_ = 0;
  Fiber::Outside outside_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  u32 used_fibers_ = 0;  // of the group that runs
  u32 finished_ = 0;     // lanes
  Lane* begins_ = nullptr;
  std::vector<Lane> lanes_;
  std::vector<Simd> simds_;
  u32 at_barrier_ = 0;             // lanes
  bool is_barrier_mixed_ = false;  // they came to several
  SourceLine barrier_place_{};
  std::vector<u32> simd_order_;
  std::vector<u32> lane_order_;
  // Barriers so far. Never goes back, so that records need no clearing.
  u32 clock_ = 0;
  u32 group_begin_ = 0;             // when the group that runs began
  u32 barrier_ = 0;                 // its last barrier
  std::vector<u32> simd_barriers_;  // the last that each SIMD group came to, of either kind
  u32 shared_bytes_ = 0;
  std::vector<SharedWord> shared_;
  // Memory in which addresses of this launch lay, with room for all that it reaches.
  std::vector<BoundRange> resolved_;
  std::array<const BoundRange*, 64> recent_{};  // of it, by address
  uint64_t random_ = 0;
  std::string fault_;
};

}  // namespace moeflux::gpu::emulator
