#include "engine/forecast.h"

#include <algorithm>

#include "engine/dry_run.h"
#include "engine/traffic.h"

namespace moeflux {
namespace {

Result<StepWork> work_of_step(const LoadedModel& model, int64_t tokens, int64_t length) {
  MF_ASSIGN_OR_RETURN(const DryRun dry, dry_run(*model.model, tokens, 1));
  StepWork work{
      .dense_bytes = static_cast<double>(dry.weight_bytes) + state_bytes_seen(model, length),
      .expert_bytes = expected_expert_bytes(model, tokens),
      .multiply_adds = static_cast<double>(dry.multiply_adds)};
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    const int64_t top_k = model.spec().layers[i].moe.experts_per_token;
    work.multiply_adds +=
        static_cast<double>(tokens * top_k) * static_cast<double>(layer.parameters_per_expert());
  }
  return work;
}

DecodeForecast decode_of(const StepWork& work, double hit_rate, const MachineSpeeds& speeds) {
  return {hit_rate, (1.0 - hit_rate) * work.expert_bytes, cost_of(work, hit_rate, speeds)};
}

PromptForecast prompt_of(const StepWork& work, int64_t tokens, double hit_rate,
                         const MachineSpeeds& speeds) {
  return {tokens, (1.0 - hit_rate) * work.expert_bytes, cost_of(work, hit_rate, speeds)};
}

}  // namespace

Result<Forecast> forecast(const LoadedModel& model, const MemoryPlan& plan, int64_t context,
                          int64_t prompt_tokens, const MachineSpeeds& speeds) {
  MF_ASSIGN_OR_RETURN(const StepWork token,
                      work_of_step(model, 1, std::max<int64_t>(1, context / 2)));
  MF_ASSIGN_OR_RETURN(const StepWork prompt, work_of_step(model, prompt_tokens, prompt_tokens));
  const uint64_t slots_bytes = plan.expert_slot_bytes * model.experts.num_experts_total();
  Forecast result;
  result.cached_share = slots_bytes == 0
                            ? 1.0
                            : std::min(1.0, static_cast<double>(plan.expert_cache_bytes) /
                                                static_cast<double>(slots_bytes));
  const HitRange natural = natural_hit_rates(result.cached_share);
  result.uniform = decode_of(token, result.cached_share, speeds);
  result.natural_low = decode_of(token, natural.low, speeds);
  result.natural_high = decode_of(token, natural.high, speeds);
  result.cold_prompt = prompt_of(prompt, prompt_tokens, 0.0, speeds);
  result.warm_prompt = prompt_of(prompt, prompt_tokens, result.cached_share, speeds);
  return result;
}

std::string explain_limit(CostLimit limit) {
  switch (limit) {
    case CostLimit::kDrive:
      return "the drive: experts that are not in memory have to be read; a faster drive or more "
             "memory for them helps, a faster processor does not";
    case CostLimit::kMemory:
      return "memory bandwidth: every token reads the weights it uses once; faster memory or fewer "
             "bits a weight help, a faster drive does not";
    case CostLimit::kCompute:
      return "the processor: more or faster cores, or a GPU, help; a faster drive does not";
  }
  __builtin_unreachable();
}

}  // namespace moeflux
