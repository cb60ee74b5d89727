#include "schedule/route_tap.h"

#include <algorithm>

namespace moeflux {

void RouteTap::begin() {
  const bool is_recorded = std::ranges::any_of(records_, [](const auto& one) { return !!one; });
  if (!is_recorded) records_.clear();
  if (!is_recorded && !trace_) return;
  seen_.assign(engine_.loaded().experts.layers.size(), 0);
  observes_ = true;
  engine_.experts().routes().observe(this);
}

// Decode comes before prompts, in the order of the step's texts. A loop's layers come again.
void RouteTap::routed(const LayerRoutes& routes, std::span<const ExpertId> misses) {
  if (trace_) trace_->routed(routes, misses);
  if (routes.phase != StepPhase::kDecode || records_.empty()) return;
  const auto layer = static_cast<size_t>(index(routes.layer));
  const auto& record = records_[seen_[layer]++ % records_.size()];
  if (!record) return;
  const uint64_t bytes = engine_.loaded().experts.layers[layer].bytes_per_expert();
  record->add(routes, misses, misses.size() * bytes);
}

void RouteTap::end(bool is_whole, const StepCosts& costs) {
  for (const auto& record : records_) {
    if (!record) continue;
    is_whole ? record->end_token(costs) : record->drop_token();
  }
}

}  // namespace moeflux
