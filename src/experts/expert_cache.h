// Keeps experts worth keeping in a fixed number of equal slots of one buffer. Knows bytes, keys and
// routes; knows nothing about files or layers' math. Eviction takes the unpinned expert its policy
// values least; when all are pinned, reserve() says so instead of waiting. Allocates only when it
// is made. Thread-compatible: the engine's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/eviction_policy.h"
#include "experts/victim_queue.h"
#include "tensor/tensor.h"

namespace moeflux {

/// kLoading: bytes are on their way. There is no state for half an expert: computing gate and up
/// while down is read would save two thirds of one expert's product (0.04 ms of 1.8 MB) in a stall
/// of whole reads (1 ms each), and only for the last to arrive.
enum class SlotState : uint8_t { kAbsent, kLoading, kReady };

/// Why an expert is in its slot.
enum class Admission : uint8_t {
  kCached,       // stays until the policy values it least
  kTransient,    // worth less than what it would displace: gone with its last pin
  kSpeculative,  // a guess: gone when a slot is needed, kCached once used
};

class ExpertCache {
 public:
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
  enum class Slot : uint32_t {};
  struct Found {
    Slot slot{};
    SlotState state = SlotState::kAbsent;
  };

  /// `buffer` holds num_slots x slot_bytes, each slot aligned to 64 bytes; null without bytes.
  ExpertCache(std::unique_ptr<Buffer> buffer, const Options& options);

  /// Where an expert is and how far; nullopt when it is absent. Changes nothing, as find().
  std::optional<Found> lookup(ExpertKey key) const;
  /// The slot of a READY expert; nullopt on a miss.
  std::optional<Slot> find(ExpertKey key) const;

  /// A slot for an absent expert, pinned and LOADING: a free one, or that of the unpinned expert
  /// worth least, which is evicted. nullopt when every slot is pinned.
  std::optional<Slot> reserve(ExpertKey key);
  /// The same for a prompt's next layer, which never evicts: a free slot or nullopt.
  std::optional<Slot> reserve_speculative(ExpertKey key);
  /// The same for a guess in decode: a staging slot, perhaps that of the oldest guess nobody asked
  /// for, so that reserve() finds what it would have found without guesses.
  std::optional<Slot> reserve_guess(ExpertKey key);
  /// The same for a chunk of a prompt, which shall not displace what decode uses: kCached where
  /// there is room without evicting, else kTransient in a free slot. nullopt when none is free.
  std::optional<Slot> reserve_transient(ExpertKey key);
  /// A guess came true: from now on the expert is what reserve() would have made of it, or with
  /// `transient` what reserve_transient() would.
  void promote(Slot slot, bool transient = false);
  /// The bytes have arrived: find() sees the expert from now on.
  void set_ready(Slot slot);
  /// The read failed: the slot is free again and the expert absent. The caller's pin, the only one,
  /// ends with it.
  void abandon(Slot slot);

  /// A pinned slot is never evicted. Pins nest. A slot keeps a pin until it is READY.
  void pin(Slot slot);
  void unpin(Slot slot);

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
  /// leave with their last pin. More slots than before give some back. Returns slots in use.
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
  /// Of these, how many may be used at once: all until shrink_to() says otherwise.
  size_t slot_limit() const { return limit_; }
  size_t slot_bytes() const { return options_.slot_bytes; }
  uint64_t capacity_bytes() const { return uint64_t{limit_} * options_.slot_bytes; }
  bool guards_admission() const { return options_.guard_admission; }
  /// Slots that are not free, LOADING ones included.
  size_t num_resident() const { return options_.num_slots - free_.size(); }
  uint64_t evictions() const { return evictions_; }
  /// Experts that were loaded and not admitted.
  uint64_t bypasses() const { return bypasses_; }
  /// Uses in decode since the cache was made, by shape().index_of(key).
  std::span<const uint64_t> uses() const { return uses_; }
  /// Tokens of decode that reached the layer visited most.
  uint64_t tokens() const;

 private:
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
  Slot occupy_free(ExpertKey key, Admission admission);
  /// Who would make room for the expert in a full cache; nullopt when nobody may, or when the
  /// expert is not worth it.
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

/// What one token of decode uses: in the widest layer, and in all layers. Zeros: unknown.
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
