// The caches in GPU memory and plans that `moeflux bench` measures, and which of them in turn.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan_mode.h"

namespace moeflux {

/// Plans that are measured in turn on one engine.
struct BenchCell {
  std::string near_cache;  // as --near-cache has it
  std::vector<PlanMode> plans;

  /// The plan to open the engine with, so that it can have all of these.
  PlanMode opening_plan() const;
};

/// A cell for each near cache with all plans but resident, which has no use for one: that comes
/// last, by itself. One near cache bounds resident too, as it does for every command. Fails with
/// kInvalidArgument.
Result<std::vector<BenchCell>> bench_cells(std::span<const std::string> near_caches,
                                           std::span<const std::string> plans);

}  // namespace moeflux
