// The slots that may be evicted, least valuable first: a heap per layer, because within a layer the
// order does not change as scores decay, and across layers only the tops need comparing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "experts/cache/eviction_policy.h"

namespace moeflux {

/// Allocates only when it is made.
class VictimQueue {
 public:
  struct Item {
    uint32_t slot = 0;
    int64_t rank = 0;
    uint64_t last_use = 0;  // breaks ties: the older goes first
  };

  VictimQueue(const ExpertShape& shape, size_t num_slots);

  void insert(LayerId layer, const Item& item);
  void remove(LayerId layer, uint32_t slot);
  bool contains(uint32_t slot) const { return positions_[slot] != kAbsent; }
  size_t size() const { return size_; }
  struct Victim {
    LayerId layer{};
    uint32_t slot = 0;
    int64_t worth = 0;
  };
  /// Costs a look at each layer.
  std::optional<Victim> least(const EvictionPolicy& policy) const;

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  using Heap = std::vector<Item>;

  Heap& heap(LayerId layer) { return heaps_[static_cast<size_t>(index(layer))]; }
  void place(Heap& heap, size_t at, const Item& item);
  void sift_up(Heap& heap, size_t at);
  void sift_down(Heap& heap, size_t at);

  std::vector<Heap> heaps_;
  std::vector<uint32_t> positions_;  // of a slot in its heap
  size_t size_ = 0;
};

}  // namespace moeflux
