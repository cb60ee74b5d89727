#include "experts/cache/victim_queue.h"

#include <algorithm>

#include "base/check.h"

namespace moeflux {
namespace {

bool goes_before(const VictimQueue::Item& a, const VictimQueue::Item& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.last_use < b.last_use;
}

}  // namespace

VictimQueue::VictimQueue(const ExpertShape& shape, size_t num_slots)
    : heaps_(static_cast<size_t>(shape.num_layers)), positions_(num_slots, kAbsent) {
  const size_t most = std::min(num_slots, static_cast<size_t>(shape.num_experts));
  for (Heap& heap : heaps_) heap.reserve(most);
}

void VictimQueue::place(Heap& heap, size_t at, const Item& item) {
  heap[at] = item;
  positions_[item.slot] = static_cast<uint32_t>(at);
}

void VictimQueue::sift_up(Heap& heap, size_t at) {
  const Item item = heap[at];
  while (at > 0 && goes_before(item, heap[(at - 1) / 2])) {
    place(heap, at, heap[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  place(heap, at, item);
}

void VictimQueue::sift_down(Heap& heap, size_t at) {
  const Item item = heap[at];
  while (true) {
    size_t child = 2 * at + 1;
    if (child >= heap.size()) break;
    if (child + 1 < heap.size() && goes_before(heap[child + 1], heap[child])) ++child;
    if (!goes_before(heap[child], item)) break;
    place(heap, at, heap[child]);
    at = child;
  }
  place(heap, at, item);
}

void VictimQueue::insert(LayerId layer, const Item& item) {
  MF_CHECK(!contains(item.slot));
  Heap& to = heap(layer);
  to.push_back(item);
  sift_up(to, to.size() - 1);
  ++size_;
}

void VictimQueue::remove(LayerId layer, uint32_t slot) {
  Heap& from = heap(layer);
  const size_t at = positions_[slot];
  MF_CHECK(at < from.size() && from[at].slot == slot);
  const Item last = from.back();
  from.pop_back();
  positions_[slot] = kAbsent;
  --size_;
  if (last.slot == slot) return;
  place(from, at, last);
  sift_up(from, at);
  sift_down(from, positions_[last.slot]);
}

std::optional<VictimQueue::Victim> VictimQueue::least(const EvictionPolicy& policy) const {
  std::optional<Victim> best;
  uint64_t best_last_use = 0;
  for (size_t l = 0; l < heaps_.size(); ++l) {
    if (heaps_[l].empty()) continue;
    const Item& top = heaps_[l].front();
    const LayerId layer{static_cast<int32_t>(l)};
    const int64_t worth = policy.worth(layer, top.rank);
    if (best && (worth > best->worth || (worth == best->worth && top.last_use > best_last_use))) {
      continue;
    }
    best = Victim{layer, top.slot, worth};
    best_last_use = top.last_use;
  }
  return best;
}

}  // namespace moeflux
