#include "lab/replay.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "experts/cache/layer_visit.h"
#include "lab/near_replay.h"

namespace moeflux {
namespace {

// The engine's lease, with reads that arrive at once.
void run_visit(LayerVisit& visit, const LayerRoutes& routes,
               const std::function<bool(ExpertId)>& is_near,
               std::vector<ExpertCache::Slot>& loading) {
  visit.begin(std::span(&routes, 1), is_near);
  while (visit.num_waiting() > 0) {
    loading.clear();
    while (const auto next = visit.reserve_next()) loading.push_back(next->slot);
    for (const ExpertCache::Slot slot : loading) visit.arrived(slot);
    (void)visit.deliver(SIZE_MAX);
    if (visit.num_waiting() > 0) visit.recycle();
  }
}

}  // namespace

std::vector<RouteTrace::Visit> replay_order(const RouteTrace& trace, PromptReplay prompt) {
  std::vector<RouteTrace::Visit> order;
  std::vector<RouteTrace::Visit> tokens;  // of a stretch of prompt
  const auto take_tokens = [&] {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const auto& a, const auto& b) { return a.step < b.step; });
    order.insert(order.end(), tokens.begin(), tokens.end());
    tokens.clear();
  };
  for (const RouteTrace::Visit& visit : trace.visits()) {
    if (prompt == PromptReplay::kAsRecorded || visit.phase == StepPhase::kDecode) {
      take_tokens();
      order.push_back(visit);
      continue;
    }
    if (!tokens.empty() && visit.turn != tokens.back().turn) take_tokens();
    const size_t top_k = visit.count / static_cast<size_t>(visit.tokens);
    for (int64_t t = 0; t < visit.tokens; ++t) {
      RouteTrace::Visit token = visit;
      token.step += t;
      token.tokens = 1;
      token.begin += static_cast<size_t>(t) * top_k;
      token.count = top_k;
      tokens.push_back(token);
    }
  }
  take_tokens();
  return order;
}

bool is_same_step(const RouteTrace::Visit& a, const RouteTrace::Visit& b) {
  return a.step == b.step && a.turn == b.turn && a.phase == b.phase;
}

ReplayResult replay(const RouteTrace& trace, const ReplayOptions& options) {
  if (options.near_slots > 0 && options.num_slots >= distinct_experts(trace).of) {
    return {.near = replay_near_of_all(trace, options)};
  }
  ExpertCache::Options cache_options{
      .num_slots = options.num_slots, .shape = trace.shape(), .eviction = options.eviction};
  guard_below_one_token(cache_options, trace.demand());
  if (options.staging) set_staging(cache_options, trace.shape().size());
  ExpertCache cache(nullptr, cache_options);
  LayerVisit visit(cache);
  std::optional<NearReplay> near;
  if (options.near_slots > 0) near.emplace(trace, options.near_slots, cache);
  std::vector<ExpertCache::Slot> loading;
  ReplayResult result;
  RouteTrace::Visit last{.step = -1};
  for (const RouteTrace::Visit& recorded : replay_order(trace, options.prompt)) {
    LayerRoutes routes = trace.routes(recorded);
    if (options.prompt == PromptReplay::kTokenByToken) routes.phase = StepPhase::kDecode;
    const bool new_step = !is_same_step(recorded, last);
    uint64_t near_hits = 0;
    if (near) {
      if (new_step) near->begin_step(routes.phase, recorded.tokens);
      near_hits = near->visit(routes);
    }
    const auto is_near = [&](ExpertId expert) {
      return near && near->holds({routes.layer, expert});
    };
    run_visit(visit, routes, is_near, loading);
    const bool decode = recorded.phase == StepPhase::kDecode;
    ReplayCounts& counts = decode ? result.decode : result.prefill;
    counts.hits += visit.hits().size() + near_hits;
    counts.misses += visit.misses().size();
    counts.bytes_read += visit.misses().size() * trace.expert_bytes(recorded.layer);
    if (new_step) counts.tokens += static_cast<uint64_t>(recorded.tokens);
    last = recorded;
    visit.end();
  }
  if (near) result.near = near->counts();
  result.evictions = cache.stats().evictions;
  result.bypasses = cache.stats().bypasses;
  return result;
}

DistinctExperts distinct_experts(const RouteTrace& trace) {
  const ExpertShape shape = trace.shape();
  std::vector<uint8_t> touched(shape.size());  // 1: by the prompt, 2: by decode
  std::vector<bool> visited(static_cast<size_t>(shape.num_layers));
  for (const RouteTrace::Visit& visit : trace.visits()) {
    visited[static_cast<size_t>(index(visit.layer))] = true;
    const uint8_t mark = visit.phase == StepPhase::kDecode ? 2 : 1;
    for (const int32_t id : trace.routes(visit).ids) {
      touched[shape.index_of({visit.layer, ExpertId{id}})] |= mark;
    }
  }
  DistinctExperts distinct;
  for (const uint8_t mark : touched) {
    distinct.decode += (mark & 2) != 0 ? 1 : 0;
    distinct.all += mark != 0 ? 1 : 0;
  }
  for (const bool layer : visited) {
    if (layer) distinct.of += static_cast<uint64_t>(shape.num_experts);
  }
  return distinct;
}

}  // namespace moeflux
