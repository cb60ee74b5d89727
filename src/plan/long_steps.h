// Chooses how many tokens of a prompt share a step where experts have to be brought to it: every
// step brings nearly all of them, so that a step of twice the tokens brings half the bytes a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "load/model_loader.h"
#include "plan/device_plan.h"
#include "plan/expert_plan.h"
#include "plan/memory_plan.h"

namespace moeflux {

struct LongStepRequest {
  int64_t step_tokens = 0;  // as the device prefers
  int64_t tokens_max = 0;   // that a step can have
  int64_t context_length = 0;
  const MemoryPlan& memory;                    // of steps of step_tokens
  std::span<const DeviceMemory> devices = {};  // beside the same; none: all memory is the host's
  ExpertPlanRequest experts = {};
};

/// Doubles the step until arithmetic takes longer than what it brings, or its activations would
/// take more than a share of the memory of experts, or what was asked for them. It is step_tokens
/// where nothing is brought, where a device reads a cache of the host in place, and
/// where memory is short. `counted` has the sizes and cache types of the model. Fails as dry_run().
Result<int64_t> lengthen_step(const LoadedModel& counted, const LongStepRequest& request);

/// The memory of each device when all but states and experts lie there as `plan` has it.
/// `free_bytes` are those before; `tables` the experts of each, none: all of one's.
std::vector<DeviceMemory> memory_beside(const DevicePlan& plan,
                                        std::span<const uint64_t> free_bytes,
                                        std::span<const ExpertTable> tables, bool copies_beside);

}  // namespace moeflux
