// Replays recorded routes through the engine's own cache, and through what it is held against:
// Belady's optimum and an operating system's page cache.
#pragma once

#include <cstdint>

#include "experts/cache/eviction_policy.h"
#include "experts/routes/route_trace.h"

namespace moeflux {

/// How the prompt goes through the cache.
enum class PromptReplay : uint8_t {
  kAsRecorded,    // tokens evaluated together stay together: what the engine does
  kTokenByToken,  // as if the prompt had been decoded, as published hit rates often have it
};

struct ReplayOptions {
  size_t num_slots = 0;
  EvictionPolicyOptions eviction;
  PromptReplay prompt = PromptReplay::kAsRecorded;
  /// Sets as many of num_slots aside for staging as the engine's store would; otherwise none.
  bool staging = false;
  /// Slots of a device's own memory before them, as near_placement fills them. Where num_slots hold
  /// all experts of the trace, they lie in the host's memory and nothing is read.
  size_t near_slots = 0;
};

/// Choices of decoded tokens, as ExpertStats counts them.
struct NearCounts {
  uint64_t near_hits = 0;
  uint64_t far_hits = 0;  // in the cache or absent
  uint64_t promotions = 0;
  uint64_t tokens = 0;  // of decode that were counted
};

/// Distinct experts per visit, as ExpertStats counts them.
struct ReplayCounts {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t bytes_read = 0;  // 0 when the trace does not say what an expert takes
  uint64_t tokens = 0;

  double hit_rate() const {
    const uint64_t uses = hits + misses;
    return uses == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(uses);
  }
};

struct ReplayResult {
  ReplayCounts prefill;
  ReplayCounts decode;
  uint64_t evictions = 0;
  uint64_t bypasses = 0;
  NearCounts near;
};

/// The same calls in the same order as a run of the engine with as many slots.
ReplayResult replay(const RouteTrace& trace, const ReplayOptions& options);

/// The most decode hits that any cache of so many slots can have, knowing the future, allowed to
/// keep none of what it reads, and starting decode with whatever of the prompt it likes best.
ReplayResult replay_belady(const RouteTrace& trace, const ReplayOptions& options);

/// The hits of a page cache of as many bytes: Linux' two lists, experts as units. A first read goes
/// to the inactive list, a second read while it is there moves it to the active list, a read soon
/// after its eviction puts it there at once. A hit still costs a copy, which this does not count,
/// and so does the dense part of the model, which here competes for nothing.
ReplayResult replay_page_cache(const RouteTrace& trace, const ReplayOptions& options);

/// Layers' experts that decode and prompt touched at least once.
struct DistinctExperts {
  uint64_t decode = 0;
  uint64_t all = 0;
  uint64_t of = 0;  // experts in the layers that were visited
};
DistinctExperts distinct_experts(const RouteTrace& trace);

/// True when two visits are of one step of the engine.
bool is_same_step(const RouteTrace::Visit& a, const RouteTrace::Visit& b);

/// Visits in the order of replay: as recorded, or a prompt's tokens one by one.
std::vector<RouteTrace::Visit> replay_order(const RouteTrace& trace, PromptReplay prompt);

}  // namespace moeflux
