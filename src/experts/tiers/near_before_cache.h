// Near slots before a cache in the host's memory that the drive fills: who is used most goes from
// there to here, and makes room there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "base/step_rows.h"
#include "experts/cache/expert_cache.h"
#include "experts/expert_store.h"
#include "experts/route_observer.h"
#include "experts/tiers/near_slots.h"

namespace moeflux {

/// Slots of the cache for each whose expert is on its way, and pinned so long: visits need others.
constexpr size_t kSlotsPerMove = 8;
/// Only experts that the cache keeps go.
bool may_leave_for_near(const ExpertCache& cache, ExpertKey key);

/// Thread-compatible. Holds pins of the cache.
class NearBeforeCache {
 public:
  /// The cache must outlive it and stay where it is.
  NearBeforeCache(NearSlots near, ExpertCache& cache) : near_(std::move(near)), cache_(cache) {}

  /// No lease is alive: experts that have arrived leave the cache, others start on their way.
  /// `coming_elsewhere` are on their way from the cache to near slots of other devices.
  void begin_step(std::span<const StepRows> rows, Encoder& encoder, size_t coming_elsewhere = 0);
  size_t num_coming() const { return near_.num_coming(); }
  bool holds(ExpertKey key) const { return near_.placement().slot_of(key).has_value(); }
  /// A layer's routes and all their ids: counts them, and lists the distinct ones that it holds.
  /// `helped`: a helper multiplies the others.
  void visit(std::span<const LayerRoutes> routes, std::span<const int32_t> ids, bool helped,
             std::vector<ExpertWeights>& near);
  void add_to(ExpertStats& stats) const { near_.add_to(stats); }
  void describe(ExpertMap& map) const { near_.placement().describe(map); }

 private:
  void start_moves(Encoder& encoder, size_t coming_elsewhere);

  NearSlots near_;
  ExpertCache& cache_;
  std::vector<int32_t> ids_;  // distinct
};

}  // namespace moeflux
