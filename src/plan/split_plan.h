// The plan of a model whose layers several devices share: what each has, as the engine would place
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "load/model_loader.h"
#include "plan/device_plan.h"
#include "plan/expert_plan.h"
#include "plan/forecast.h"
#include "plan/memory_plan.h"

namespace moeflux {

struct SplitPlanRequest {
  std::vector<uint64_t> free_bytes = {};      // of each device, before anything is loaded
  std::vector<double> bytes_per_second = {};  // of their memories; empty or 0: unknown
  int64_t context_length = 0;
  int64_t step_tokens = 0;
  int64_t step_tokens_max = 0;   // that a step may have where experts are brought to it
  bool step_may_shrink = false;  // rather than refuse, take fewer tokens in a step
  ExpertPlanRequest experts = {};
};

/// The share of one of the devices.
struct CardPlan {
  uint64_t free_bytes = 0;
  size_t layers = 0;
  PartPlan memory;
  PartExperts experts;
  double work_share = 0.0;  // of the weights that a prompt reads, those of its layers
};

struct SplitPlan {
  std::vector<CardPlan> cards;
  DevicePlan device;
  ExpertPlan experts;
};

/// Fails as plan_device().
Result<SplitPlan> plan_split(const LoadedModel& counted, const MemoryPlan& memory,
                             const SplitPlanRequest& request);

/// Adds what devices that work in turn take for it.
void add_hand_overs(TierForecast& forecast, size_t devices);
/// A prompt of so many chunks, each on a device as soon as the one before has left it. `chunk` is
/// one of them alone.
double piped_prompt_seconds(const SplitPlan& plan, double chunk_seconds, int64_t chunks);

}  // namespace moeflux
