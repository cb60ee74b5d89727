// Keeps experts worth keeping in a fixed number of equal slots of one buffer. Knows bytes, keys and
// routes; knows nothing about files or layers' math. Allocates only when it is made.
// Thread-compatible: the engine's thread only.
//
// The states of a slot:
//
//            reserve()              set_ready()
//   ABSENT ------------> LOADING --------------> READY
//     ^                     |                      |
//     |   last pin ends:    |                      |   evicted, or a guess that had to make room,
//     |   the read failed   |                      |   or a transient expert's last pin has ended
//     +---------------------+----------------------+
//
// A LOADING slot has a pin: whoever reads into it holds the one that reserve() gave. A READY slot
// with a pin keeps its expert. A READY slot without one keeps it until its memory is wanted. Its
// Admission says when it goes: kCached slots by their worth, kSpeculative ones oldest first.
// promote() makes a speculative slot, LOADING or READY, cached or transient.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "experts/cache/eviction_policy.h"
#include "experts/cache/victim_queue.h"
#include "experts/expert_map.h"
#include "tensor/tensor.h"

namespace moeflux {

/// kLoading: bytes are on their way. There is no state for half an expert. Computing gate and up
/// while down is read would save two thirds of the last expert's product (0.04 ms for 1.8 MB), in a
/// stall of reads that take 1 ms each.
enum class SlotState : uint8_t { kAbsent, kLoading, kReady };

/// Why an expert is in its slot.
enum class Admission : uint8_t {
  kCached,       // stays until the policy values it least
  kTransient,    // worth less than what it would displace: gone with its last pin
  kSpeculative,  // a guess: gone when a slot is needed, kCached once used
};

/// The purpose of a slot: it decides which expert may leave for it, and how long the new one stays.
enum class Purpose : uint8_t {
  /// A token of decode waits. Takes a free slot, else that of the unpinned expert worth least.
  /// kCached; kTransient where the guard finds that the other is worth more.
  kDecode,
  /// A chunk of a prompt waits, and shall not displace what decode uses. Takes a free slot or a
  /// guess's. kCached where there is room without evicting, else kTransient.
  kPrompt,
  /// Decode may want it. Takes a staging slot, perhaps that of the oldest guess nobody asked for,
  /// so that kDecode finds what it would have found without guesses. kSpeculative.
  kGuess,
  /// A prompt's next layer will want it. Takes a free slot. kSpeculative.
  kReadAhead,
};

class ExpertCache;

/// Keeps an expert in its slot until the pin is released or destroyed. Pins of one slot count. The
/// last pin of a LOADING slot leaves the expert absent: its read has failed, or was never begun.
/// Move-only; the cache must outlive it and stay where it is.
class ExpertPin {
 public:
  enum class Slot : uint32_t {};

  ExpertPin() = default;
  /// One more pin of an expert that is there or on its way.
  ExpertPin(ExpertCache& cache, Slot slot);
  ~ExpertPin() { release(); }
  ExpertPin(ExpertPin&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)), slot_(other.slot_) {}
  ExpertPin& operator=(ExpertPin&& other) noexcept {
    if (this == &other) return *this;
    release();
    cache_ = std::exchange(other.cache_, nullptr);
    slot_ = other.slot_;
    return *this;
  }
  ExpertPin(const ExpertPin&) = delete;
  ExpertPin& operator=(const ExpertPin&) = delete;

  explicit operator bool() const { return cache_ != nullptr; }
  /// The slot of a pin that holds something.
  Slot slot() const { return slot_; }
  void release();

 private:
  ExpertCache* cache_ = nullptr;
  Slot slot_{};
};

class ExpertCache {
 public:
  using Slot = ExpertPin::Slot;
  struct Options {
    size_t slot_bytes = 0;  // 0: a cache without bytes, to replay routes
    size_t num_slots = 0;
    ExpertShape shape;
    EvictionPolicyOptions eviction;
    /// Slots that never hold kCached experts, for transient and speculative ones.
    size_t num_staging = 0;
    /// Admit an expert only when it is worth more than what it displaces and a staging slot is
    /// free for it otherwise. For caches below one token's experts, where each admission evicts
    /// what the same or the next token needs.
    bool guard_admission = false;
  };
  struct Found {
    Slot slot{};
    SlotState state = SlotState::kAbsent;
  };

  /// Counts since the cache was made.
  struct Stats {
    uint64_t evictions = 0;
    uint64_t bypasses = 0;                // experts that were loaded and not admitted
    std::span<const uint64_t> uses = {};  // in decode, by shape().index_of(key); the cache's own
    uint64_t tokens = 0;                  // of decode that reached the layer visited most
  };

  /// `buffer` holds num_slots x slot_bytes, each slot aligned to 64 bytes; null without bytes.
  ExpertCache(std::unique_ptr<Buffer> buffer, const Options& options);

  /// Where an expert is and how far; nullopt when it is absent. Changes nothing, as find().
  std::optional<Found> lookup(ExpertKey key) const;
  /// The slot of a READY expert; nullopt on a miss.
  std::optional<Slot> find(ExpertKey key) const;

  /// A slot for an absent expert, LOADING. A null pin when there is none for this purpose, without
  /// waiting for one.
  ExpertPin reserve(ExpertKey key, Purpose purpose);
  /// A guess came true: from now on the expert is what reserve() would have made of it for this
  /// purpose, kDecode or kPrompt. No change to others.
  void promote(Slot slot, Purpose purpose);
  /// The bytes have arrived: find() sees the expert from now on.
  void set_ready(Slot slot);
  /// The expert of a pinned slot is needed no longer: it goes with its last pin.
  void let_go(Slot slot);

  /// A token of decode reaches the layer, then its experts, best first.
  void begin_visit(LayerId layer);
  void note_use(ExpertKey key);
  /// A chunk of a prompt: `uses[i]` of `tokens` tokens chose `experts[i]`. Seeds what decode will
  /// find, with little weight; never counts as use.
  void note_prefill(LayerId layer, std::span<const int32_t> experts, std::span<const int32_t> uses,
                    int64_t tokens);
  /// The same from elsewhere: `uses[e]` of `tokens` tokens chose expert e.
  void seed(LayerId layer, std::span<const double> uses, double tokens);

  /// Uses at most so many slots from now on, evicting what is unpinned; pinned slots beyond them
  /// leave with their last pin. A larger count than before returns slots that an earlier call took
  /// away. Returns slots in use.
  size_t shrink_to(size_t num_slots);
  /// Moves experts out of the slots that shrinking has left without use into free ones before them.
  /// Returns how many slots, from the first on, are used until more are asked for; fewer than all
  /// only when nothing beyond the limit is pinned, on its way or a guess.
  size_t compact();
  bool is_free(Slot slot) const { return entry(slot).state == SlotState::kAbsent; }

  /// Null without bytes.
  Buffer& buffer() { return *buffer_; }
  size_t offset_of(Slot slot) const { return static_cast<size_t>(slot) * options_.slot_bytes; }
  ExpertKey key_of(Slot slot) const { return entry(slot).key; }
  Admission admission_of(Slot slot) const { return entry(slot).admission; }
  const ExpertShape& shape() const { return options_.shape; }
  size_t num_slots() const { return options_.num_slots; }
  size_t num_staging() const { return options_.num_staging; }
  /// How many slots may be used at once: all until shrink_to() says otherwise.
  size_t slot_limit() const { return limit_; }
  size_t slot_bytes() const { return options_.slot_bytes; }
  uint64_t capacity_bytes() const { return uint64_t{limit_} * options_.slot_bytes; }
  /// Marks the READY experts, in the host's memory, and sets the uses.
  void describe(ExpertMap& map) const;
  bool guards_admission() const { return options_.guard_admission; }
  /// Slots that are not free, LOADING ones included.
  size_t num_resident() const { return options_.num_slots - free_.size(); }
  Stats stats() const;

 private:
  friend class ExpertPin;

  struct Entry {
    ExpertKey key;
    SlotState state = SlotState::kAbsent;
    Admission admission = Admission::kCached;
    int32_t pins = 0;
  };
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  Entry& entry(Slot slot) { return entries_[static_cast<size_t>(slot)]; }
  const Entry& entry(Slot slot) const { return entries_[static_cast<size_t>(slot)]; }
  bool may_take_free_slot() const { return !free_.empty() && num_resident() < limit_; }
  size_t cached_max() const;
  void pin(Slot slot);
  void unpin(Slot slot);
  std::optional<Admission> make_room(ExpertKey key, Purpose purpose);
  std::optional<Admission> make_room_for_decode(ExpertKey key);
  ExpertPin occupy_free(ExpertKey key, Admission admission);
  /// The expert that would make room in a full cache; nullopt when none may, or when the new expert
  /// is not worth it.
  std::optional<VictimQueue::Victim> victim_for(ExpertKey key) const;
  void release(Slot slot);
  void evict(const VictimQueue::Victim& victim);
  bool drop_speculation();
  void move(Slot from, Slot to);
  void make_evictable(Slot slot);
  void rerank(Slot slot);
  void rerank(LayerId layer);

  Options options_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<EvictionPolicy> policy_;
  VictimQueue victims_;             // kCached, READY, without pins
  std::vector<Slot> speculations_;  // kSpeculative, READY, without pins; oldest first
  std::vector<Entry> entries_;      // by slot
  std::vector<Slot> free_;          // last one next
  std::vector<uint32_t> slots_;     // by expert; kNoSlot when absent
  std::vector<uint64_t> last_use_;  // by expert
  std::vector<uint64_t> uses_;      // by expert
  std::vector<uint64_t> visits_;    // by layer
  size_t limit_;
  size_t num_cached_ = 0;
  size_t num_speculative_ = 0;
  uint64_t clock_ = 0;
  uint64_t evictions_ = 0;
  uint64_t bypasses_ = 0;
};

/// Experts that one token of decode uses: in the widest layer, and in all layers. Zeros: unknown.
struct TokenDemand {
  int64_t per_layer = 0;
  int64_t per_token = 0;
};

/// Turns the guard on, with staging slots for one layer, when the cache holds less than the experts
/// of 1.2 tokens: from there down a plain LRU has no hits at all.
void guard_below_one_token(ExpertCache::Options& options, const TokenDemand& demand);

/// Sets slots aside for experts on their way through, of prompts and of guesses, unless the guard
/// has: enough to keep a drive busy while a layer computes, a few per cent of small caches, none
/// where all `num_experts` fit.
void set_staging(ExpertCache::Options& options, uint64_t num_experts);

}  // namespace moeflux
