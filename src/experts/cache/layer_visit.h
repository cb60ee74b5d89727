// The order in which a layer uses the cache: look all its experts up and pin those that are there,
// tell the policy, then reserve slots for the others one by one. The store and the replay of traces
// both go through here, so that a replay counts what the engine counts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/cache/expert_cache.h"
#include "experts/route_observer.h"

namespace moeflux {

/// Reusable: after a first visit of every size, a visit allocates nothing. The cache must outlive
/// the visit; its pins end with end() or with the visit.
class LayerVisit {
 public:
  struct Entry {
    ExpertId expert{};
    ExpertCache::Slot slot{};
  };

  explicit LayerVisit(ExpertCache& cache) : cache_(&cache), pins_(cache.num_slots()) {}
  ~LayerVisit() { end(); }
  LayerVisit(const LayerVisit&) = delete;
  LayerVisit& operator=(const LayerVisit&) = delete;

  /// Counts and pins, for all sequences of a step at once: `routes` are of one layer. Every id must
  /// be within the cache's shape. Experts that are elsewhere only count as used.
  void begin(
      std::span<const LayerRoutes> routes,
      const std::function<bool(ExpertId)>& is_elsewhere = [](ExpertId) { return false; });

  // The distinct experts by outcome, ascending (the order of the file in stacked checkpoints):
  std::span<const Entry> hits() const { return hits_; }          // READY, kept from earlier uses
  std::span<const Entry> guessed() const { return guessed_; }    // READY, read ahead for this visit
  std::span<const Entry> arriving() const { return arriving_; }  // the same, not READY yet
  std::span<const ExpertId> misses() const { return misses_; }   // absent

  /// A slot for the next miss, LOADING. nullopt when there is none left, or every slot is pinned:
  /// arrivals and recycle() make room then. Given up again if `read`, which asks for its bytes,
  /// does not return: nobody would end its wait.
  std::optional<Entry> reserve_next(const std::function<void(const Entry&)>& read =
                                        [](const Entry&) {});
  size_t num_waiting() const { return misses_.size() - next_miss_; }
  /// The bytes of a reserved or arriving expert are there.
  void arrived(ExpertCache::Slot slot);
  /// Its read failed: the expert is absent again.
  void failed(ExpertCache::Slot slot);

  /// The next READY experts, at most `max`, in the order in which they became so. They stay pinned
  /// until recycle(); the span until the next call of anything.
  std::span<const Entry> deliver(size_t max);
  bool has_undelivered() const { return delivered_ < ready_.size(); }
  size_t num_delivered() const { return delivered_ - recycled_; }
  /// Unpins what was delivered: its work has finished. The others stay pinned.
  void recycle();
  /// Unpins everything and forgets the misses without a slot. Nothing may be LOADING.
  void end();

 private:
  void count_uses(std::span<const LayerRoutes> routes);
  void note_uses(std::span<const LayerRoutes> routes);
  void promote_guesses();
  Purpose purpose_of(ExpertId expert) const;

  ExpertCache* cache_;
  LayerId layer_{};
  std::vector<ExpertPin> pins_;  // by slot: those of READY experts until recycle()
  std::vector<int32_t> distinct_;
  std::vector<int32_t> of_decode_;  // these of its rows, ascending
  std::vector<int32_t> of_prompts_;
  std::vector<int32_t> uses_;  // of each of of_prompts_
  std::vector<Entry> hits_;
  std::vector<Entry> guessed_;
  std::vector<Entry> arriving_;
  std::vector<ExpertId> misses_;
  size_t next_miss_ = 0;
  std::vector<Entry> ready_;
  size_t delivered_ = 0;
  size_t recycled_ = 0;
};

}  // namespace moeflux
