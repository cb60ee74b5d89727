// Near slots of a replay: the placement of the engine's stores, called in their order, with copies
// that have always arrived by the next step.
#pragma once

#include <cstdint>
#include <vector>

#include "experts/cache/expert_cache.h"
#include "experts/routes/route_trace.h"
#include "experts/tiers/near_placement.h"
#include "lab/replay.h"

namespace moeflux {

/// As experts/tiers/near_before_cache drives it: routes are known at once, a cache is behind.
class NearReplay {
 public:
  NearReplay(const RouteTrace& trace, size_t num_slots, ExpertCache& cache);

  /// A step begins: experts on their way have arrived and leave the cache, others start.
  void begin_step(StepPhase phase, int64_t tokens);
  /// Counts choices, and returns how many distinct ones are near.
  uint64_t visit(const LayerRoutes& routes);
  bool holds(ExpertKey key) const { return placement_.slot_of(key).has_value(); }
  const NearCounts& counts() const { return counts_; }

 private:
  struct Coming {
    NearPlacement::Slot slot{};
    ExpertPin pin;
  };

  NearPlacement placement_;
  ExpertCache& cache_;
  std::vector<Coming> coming_;
  std::vector<int32_t> ids_;
  NearCounts counts_;
};

/// As experts/stores/tiered_expert_store drives it: the host's memory holds all experts, slots
/// begin with the first of each layer, and a step's routes are counted when the step after the next
/// begins. Nobody counts the last two steps.
NearCounts replay_near_of_all(const RouteTrace& trace, const ReplayOptions& options);

}  // namespace moeflux
