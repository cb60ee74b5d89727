// Keeps recently used experts in a fixed number of equal slots of one buffer. Knows bytes and keys;
// knows nothing about files or layers' math. Eviction takes the least recently used slot that is
// not pinned; when all are pinned, reserve() says so instead of waiting. Thread-compatible: the
// engine's thread only.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace moeflux {

class ExpertCache {
 public:
  struct Options {
    size_t slot_bytes = 0;
    size_t num_slots = 0;
  };
  enum class Slot : uint32_t {};

  /// `buffer` holds num_slots x slot_bytes, each slot aligned to 64 bytes.
  ExpertCache(std::unique_ptr<Buffer> buffer, const Options& options);

  /// The slot of a READY expert, made the most recently used; nullopt on a miss.
  std::optional<Slot> find(ExpertKey key);
  /// A slot for an absent expert, pinned and LOADING: a free one, or the least recently used
  /// unpinned one, whose expert is evicted. nullopt when every slot is pinned.
  std::optional<Slot> reserve(ExpertKey key);
  /// The bytes have arrived: find() sees the expert from now on.
  void set_ready(Slot slot);
  /// The read failed: the slot is free again and the expert absent. The caller's pin ends with it.
  void abandon(Slot slot);

  /// A pinned slot is never evicted. Pins nest.
  void pin(Slot slot);
  void unpin(Slot slot);

  Buffer& buffer() { return *buffer_; }
  size_t offset_of(Slot slot) const { return static_cast<size_t>(slot) * options_.slot_bytes; }
  size_t num_slots() const { return options_.num_slots; }
  uint64_t capacity_bytes() const { return uint64_t{options_.num_slots} * options_.slot_bytes; }
  size_t num_resident() const { return by_key_.size(); }
  uint64_t evictions() const { return evictions_; }

 private:
  enum class State : uint8_t { kAbsent, kLoading, kReady };
  struct Entry {
    ExpertKey key;
    State state = State::kAbsent;
    int32_t pins = 0;
    std::list<Slot>::iterator position;  // in recency_
  };

  Entry& entry(Slot slot) { return entries_[static_cast<size_t>(slot)]; }

  Options options_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<Entry> entries_;
  std::list<Slot> recency_;  // every slot; least recently used, or free, first
  std::unordered_map<ExpertKey, Slot, ExpertKeyHash> by_key_;  // LOADING and READY
  uint64_t evictions_ = 0;
};

}  // namespace moeflux
