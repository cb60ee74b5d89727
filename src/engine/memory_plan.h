// Who gets how much memory: dense weights, sequence state, scratch, and what is left for the expert
// cache.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/model_loader.h"

namespace moeflux {

struct MemoryPlan {
  uint64_t dense_bytes = 0;
  uint64_t state_bytes = 0;    // of one sequence at full context
  uint64_t scratch_bytes = 0;  // activations of one prefill chunk, and logits
  uint64_t experts_bytes = 0;  // all of them, were they resident
  uint64_t expert_slot_bytes = 0;
  uint64_t expert_cache_bytes = 0;    // what the cache may take
  uint64_t cold_bytes_per_token = 0;  // read per decoded token when nothing is cached
  uint64_t available_bytes = 0;       // before the dense weights were loaded
};

struct MemoryPlanRequest {
  uint64_t available_bytes = 0;  // HostMemory::available_bytes before anything is loaded
  int64_t context_length = 0;
  int64_t step_tokens_max = 0;
  uint64_t scratch_bytes = 0;
  std::optional<uint64_t>
      expert_cache_bytes;  // what the user asked for; default: a share of what is left
};

MemoryPlan plan_memory(const LoadedModel& model, const MemoryPlanRequest& request);

}  // namespace moeflux
