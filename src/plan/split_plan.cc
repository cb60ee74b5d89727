#include "plan/split_plan.h"

#include <algorithm>

#include "experts/stores/split_expert_store.h"
#include "plan/layer_split.h"
#include "plan/long_steps.h"

namespace moeflux {
namespace {

// Shares of the devices in the weights that a prompt's tokens read.
std::vector<double> work_shares(const LoadedModel& model, std::span<const size_t> part_of_layer,
                                size_t devices) {
  std::vector<double> shares(devices);
  double all = 0.0;
  const SplitSizes sizes = split_sizes(model, 0, 0);
  for (size_t l = 0; l < part_of_layer.size(); ++l) {
    const SplitLayer& layer = sizes.layers[l];
    const auto bytes = static_cast<double>(layer.dense - layer.head + layer.token_experts);
    shares[part_of_layer[l]] += bytes;
    all += bytes;
  }
  for (double& share : shares) share /= std::max(1.0, all);
  return shares;
}

}  // namespace

Result<SplitPlan> plan_split(const LoadedModel& counted, const MemoryPlan& memory,
                             const SplitPlanRequest& request) {
  const size_t count = request.free_bytes.size();
  MF_ASSIGN_OR_RETURN(const std::vector<size_t> part_of_layer,
                      split_layers(counted, {.free_bytes = request.free_bytes,
                                             .bytes_per_second = request.bytes_per_second,
                                             .context_length = request.context_length,
                                             .step_tokens = request.step_tokens}));
  DevicePlanRequest own{.free_by_part = request.free_bytes,
                        .part_of_layer = part_of_layer,
                        .context_length = request.context_length,
                        .step_tokens = request.step_tokens,
                        .step_may_shrink = request.step_may_shrink,
                        .near_cache_bytes = request.experts.near_cache_bytes};
  const std::vector<ExpertTable> tables = tables_by_part(counted.experts, part_of_layer, count);
  SplitPlan plan;
  MF_ASSIGN_OR_RETURN(plan.device, plan_device(counted, own));
  std::vector<DeviceMemory> devices = memory_beside(plan.device, request.free_bytes, tables, true);
  MF_ASSIGN_OR_RETURN(const int64_t longer,
                      lengthen_step(counted, {.step_tokens = plan.device.step_tokens,
                                              .tokens_max = request.step_tokens_max,
                                              .context_length = request.context_length,
                                              .memory = memory,
                                              .devices = devices,
                                              .experts = request.experts}));
  if (longer > plan.device.step_tokens) {
    own.step_tokens = longer;
    MF_ASSIGN_OR_RETURN(plan.device, plan_device(counted, own));
    devices = memory_beside(plan.device, request.free_bytes, tables, true);
  }
  plan.experts = plan_experts(counted.experts, memory, devices, request.experts);
  const std::vector<double> work = work_shares(counted, part_of_layer, count);
  for (size_t i = 0; i < count; ++i) {
    plan.cards.push_back(
        {.free_bytes = request.free_bytes[i],
         .layers = static_cast<size_t>(std::ranges::count(part_of_layer, i)),
         .memory = plan.device.parts[i],
         .experts = plan.experts.parts.empty() ? PartExperts{} : plan.experts.parts[i],
         .work_share = work[i]});
  }
  return plan;
}

void add_hand_overs(TierForecast& forecast, size_t devices) {
  const double seconds = kHandOverSeconds * static_cast<double>(devices - 1);
  for (TierStepForecast* step :
       {&forecast.uniform, &forecast.natural_low, &forecast.natural_high}) {
    step->cost.total_seconds += seconds;
  }
}

double piped_prompt_seconds(const SplitPlan& plan, double chunk_seconds, int64_t chunks) {
  double slowest = 0.0;
  for (const CardPlan& card : plan.cards) slowest = std::max(slowest, card.work_share);
  return chunk_seconds * (1.0 + static_cast<double>(chunks - 1) * slowest);
}

}  // namespace moeflux
