// RouteObserver: sees which experts every layer chose, as an expert store learns it.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/step_rows.h"

namespace moeflux {

/// The experts that one layer chose for a sequence's rows of a step.
struct LayerRoutes {
  LayerId layer{};
  StepPhase phase = StepPhase::kDecode;
  int64_t position = 0;                 // of the first token in its sequence
  int64_t tokens = 0;                   // at least 1
  std::span<const int32_t> ids;         // [tokens, top_k], best first
  std::span<const float> weights = {};  // the same; may be empty

  int64_t top_k() const { return static_cast<int64_t>(ids.size()) / tokens; }
};

class RouteObserver {
 public:
  virtual ~RouteObserver() = default;
  /// Once for each sequence of a step. `misses`: the distinct experts that were not in fast memory,
  /// ascending; each is told of once in a step, with the first sequence that chose it. The spans
  /// live until the call returns.
  virtual void routed(const LayerRoutes& routes, std::span<const ExpertId> misses) = 0;
};

}  // namespace moeflux
