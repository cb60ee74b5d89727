// RouteObserver: sees which experts every layer chose, as an expert store learns it.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace moeflux {

/// kPrefill: several tokens at once; kDecode: one.
enum class RoutePhase : uint8_t { kPrefill = 0, kDecode = 1 };

/// The experts of one layer in one step.
struct LayerRoutes {
  LayerId layer{};
  RoutePhase phase = RoutePhase::kDecode;
  int64_t position = 0;                 // of the first token in its sequence
  int64_t tokens = 0;                   // at least 1
  std::span<const int32_t> ids;         // [tokens, top_k], best first
  std::span<const float> weights = {};  // the same; may be empty

  int64_t top_k() const { return static_cast<int64_t>(ids.size()) / tokens; }
};

class RouteObserver {
 public:
  virtual ~RouteObserver() = default;
  /// `misses`: the distinct experts that were not in fast memory, ascending. The spans live until
  /// the call returns.
  virtual void routed(const LayerRoutes& routes, std::span<const ExpertId> misses) = 0;
};

}  // namespace moeflux
