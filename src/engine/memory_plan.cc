#include "engine/memory_plan.h"

#include <algorithm>

#include "base/units.h"

namespace moeflux {
namespace {

// Of what dense weights, state and scratch leave, the cache takes three quarters: one cache sized
// below what the system will leave resident beats a larger one that gets swapped or reclaimed.
constexpr uint64_t kShareNumerator = 3;
constexpr uint64_t kShareDenominator = 4;

}  // namespace

MemoryPlan plan_memory(const LoadedModel& model, const MemoryPlanRequest& request) {
  MemoryPlan plan;
  plan.available_bytes = request.available_bytes;
  plan.dense_bytes = model.dense_bytes;
  plan.scratch_bytes = request.scratch_bytes;
  for (const LayerStateSpec& layer : state_specs(model.spec())) {
    const int64_t tokens =
        SequenceState::kPageTokens *
        SequenceState::pages_needed(layer, request.context_length, request.step_tokens_max);
    plan.state_bytes +=
        layer.bytes_fixed() + layer.bytes_per_token() * static_cast<uint64_t>(tokens);
  }
  plan.experts_bytes = model.experts.bytes_total();
  plan.expert_slot_bytes = model.experts.slot_bytes_max();
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    plan.cold_bytes_per_token +=
        static_cast<uint64_t>(model.spec().layers[i].moe.experts_per_token) *
        layer.bytes_per_expert();
  }
  if (request.expert_cache_bytes) {
    plan.expert_cache_bytes = *request.expert_cache_bytes;
    return plan;
  }
  const uint64_t taken = plan.dense_bytes + plan.state_bytes + plan.scratch_bytes;
  const uint64_t left = plan.available_bytes > taken ? plan.available_bytes - taken : 0;
  const uint64_t everything = plan.expert_slot_bytes * model.experts.num_experts_total();
  plan.expert_cache_bytes = std::min(left / kShareDenominator * kShareNumerator, everything);
  if (plan.expert_cache_bytes < plan.expert_slot_bytes) plan.expert_cache_bytes = 0;
  return plan;
}

}  // namespace moeflux
