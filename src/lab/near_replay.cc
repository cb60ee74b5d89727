#include "lab/near_replay.h"

#include <algorithm>
#include <set>
#include <span>

#include "experts/tiers/near_before_cache.h"

namespace moeflux {
namespace {

void count(const NearPlacement& placement, LayerId layer, std::span<const int32_t> experts,
           NearCounts& counts) {
  for (const int32_t e : experts) {
    ++(placement.slot_of({layer, ExpertId{e}}) ? counts.near_hits : counts.far_hits);
  }
}

// Records one layer's routes in a placement, and counts those of decode.
void note(NearPlacement& placement, const LayerRoutes& routes, NearCounts& counts) {
  if (routes.phase == StepPhase::kPrompt) {
    return placement.note_prompt(routes.layer, routes.ids, routes.tokens);
  }
  placement.note_use(routes.layer, routes.ids);
  count(placement, routes.layer, routes.ids, counts);
}

/// The visits of each step, one after the other.
std::vector<std::span<const RouteTrace::Visit>> steps_of(std::span<const RouteTrace::Visit> all) {
  std::vector<std::span<const RouteTrace::Visit>> steps;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && is_same_step(all[begin], all[end])) ++end;
    steps.push_back(all.subspan(begin, end - begin));
  }
  return steps;
}

StepPhase phase_of(const RouteTrace::Visit& visit, const ReplayOptions& options) {
  return options.prompt == PromptReplay::kTokenByToken ? StepPhase::kDecode : visit.phase;
}

// The first experts of all layers that have any, then the second, and so on.
void fill(NearPlacement& placement, const RouteTrace& trace) {
  std::set<LayerId> layers;
  for (const RouteTrace::Visit& visit : trace.visits()) layers.insert(visit.layer);
  for (int32_t e = 0; e < trace.shape().num_experts; ++e) {
    for (const LayerId layer : layers) {
      const auto slot = placement.fill({layer, ExpertId{e}});
      if (!slot) return;
      placement.arrived(*slot);
    }
  }
}

}  // namespace

NearReplay::NearReplay(const RouteTrace& trace, size_t num_slots, ExpertCache& cache)
    : placement_(trace.shape(), num_slots, {}), cache_(cache) {}

void NearReplay::begin_step(StepPhase phase, int64_t tokens) {
  for (Coming& coming : coming_) {
    placement_.arrived(coming.slot);
    cache_.let_go(coming.pin.slot());
    coming.pin.release();
  }
  coming_.clear();
  const auto moves =
      placement_.choose_moves(cache_.slot_limit() / kSlotsPerMove,
                              [&](ExpertKey key) { return may_leave_for_near(cache_, key); });
  for (const NearPlacement::Move& move : moves) {
    coming_.push_back({move.slot, ExpertPin(cache_, *cache_.find(move.in))});
  }
  counts_.promotions += moves.size();
  if (phase != StepPhase::kDecode) return;
  counts_.tokens += static_cast<uint64_t>(tokens);
  for (int64_t i = 0; i < tokens; ++i) placement_.begin_token();
}

uint64_t NearReplay::visit(const LayerRoutes& routes) {
  note(placement_, routes, counts_);
  ids_.assign(routes.ids.begin(), routes.ids.end());
  std::ranges::sort(ids_);
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  return static_cast<uint64_t>(std::ranges::count_if(ids_, [&](int32_t id) {
    return holds({routes.layer, ExpertId{id}});
  }));
}

NearCounts replay_near_of_all(const RouteTrace& trace, const ReplayOptions& options) {
  const std::vector<RouteTrace::Visit> order = replay_order(trace, options.prompt);
  const auto steps = steps_of(order);
  NearPlacement placement(trace.shape(), options.near_slots, {});
  fill(placement, trace);
  NearCounts counts;
  std::vector<NearPlacement::Slot> coming;
  for (size_t now = 2; now < steps.size(); ++now) {
    for (const NearPlacement::Slot slot : coming) placement.arrived(slot);
    const std::span<const RouteTrace::Visit> known = steps[now - 2];
    const StepPhase phase = phase_of(known.front(), options);
    if (phase == StepPhase::kDecode) {
      counts.tokens += static_cast<uint64_t>(known.front().tokens);
      for (int64_t i = 0; i < known.front().tokens; ++i) placement.begin_token();
    }
    const uint64_t far_before = counts.far_hits;
    for (const RouteTrace::Visit& visit : known) {
      LayerRoutes routes = trace.routes(visit);
      routes.phase = phase;
      note(placement, routes, counts);
    }
    const auto moves = placement.choose_moves(
        moves_after_step(phase == StepPhase::kPrompt, counts.far_hits - far_before));
    counts.promotions += moves.size();
    coming.clear();
    for (const NearPlacement::Move& move : moves) coming.push_back(move.slot);
  }
  return counts;
}

}  // namespace moeflux
