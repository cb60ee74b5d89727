// How fast a model will run on a machine before anybody runs it: the cost model applied to what a
// memory plan leaves for experts.
#pragma once

#include <span>
#include <vector>

#include "load/model_loader.h"
#include "plan/cost_model.h"
#include "plan/expert_plan.h"
#include "plan/memory_plan.h"
#include "plan/tier_cost.h"

namespace moeflux {

/// A token of decode, when so many of its experts' bytes are found in memory.
struct DecodeForecast {
  double hit_rate = 0.0;
  double read_bytes = 0.0;  // from the drive
  StepCost cost;

  double tokens_per_second() const { return 1.0 / cost.in_layer_seconds; }
};

struct PromptForecast {
  int64_t tokens = 0;
  double read_bytes = 0.0;
  StepCost cost;

  /// Reads of a prompt run ahead of the layer that needs them: the bound counts.
  double tokens_per_second() const { return static_cast<double>(tokens) / cost.bound_seconds; }
};

struct Forecast {
  double cached_share = 0.0;    // of the experts that fit into the cache
  DecodeForecast uniform;       // every expert equally likely: random weights, the worst
  DecodeForecast natural_low;   // natural text, models whose routes repeat little
  DecodeForecast natural_high;  // and much
  PromptForecast cold_prompt;   // nothing cached
  PromptForecast warm_prompt;   // the cache full of experts, whichever
};

/// Decode in the middle of a text of `context` tokens; a prompt of `prompt_tokens` in one chunk.
/// `model` needs no weights. Speeds must be positive; a model without experts needs no drive.
Result<Forecast> forecast(const LoadedModel& model, const MemoryPlan& plan, int64_t context,
                          int64_t prompt_tokens, const MachineSpeeds& speeds);

/// A token of decode or a prompt in one step, on a device with memory of its own.
struct TierStepForecast {
  int64_t tokens = 0;
  TierShares found;  // of the experts' bytes
  TierCost cost;

  double tokens_per_second() const { return static_cast<double>(tokens) / cost.total_seconds; }
};

struct TierForecast {
  double near_share = 0.0;   // of all experts, that the device's memory holds,
  double far_share = 0.0;    // and beside those the host's
  TierStepForecast uniform;  // of decode, as Forecast has them
  TierStepForecast natural_low;
  TierStepForecast natural_high;
  std::vector<TierStepForecast> prompts;  // with both memories full of experts, whichever
};

/// Weights of a model without experts that lie in the host's memory, of those every token reads.
struct FarDense {
  uint64_t bytes = 0;
  uint64_t network_bytes = 0;  // of these, that are copied ahead of their layers
  bool has_helper = false;     // a processor may compute networks where they lie
};

/// The same as forecast() for experts that lie as `experts` says. Each of `prompts` is evaluated in
/// one step. `far` is for a model without experts. The least that a token may cost decides who
/// computes its networks, as the engine finds out by trying.
Result<TierForecast> forecast_tiers(const LoadedModel& model, const ExpertPlan& experts,
                                    int64_t context, std::span<const int64_t> prompts,
                                    const TierSpeeds& speeds, const FarDense& far = {});

/// Names the largest part of a step and its remedy, for the owner of the machine.
std::string explain_limit(CostLimit limit);
std::string explain_limit(TierLimit limit);

}  // namespace moeflux
