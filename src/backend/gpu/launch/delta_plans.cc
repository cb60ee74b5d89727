#include "backend/gpu/launch/delta_plans.h"

#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

// Two blocks of tokens, and a token after each.
uint32_t block_bytes(const DeltaParams& p, uint32_t rows) {
  return 2 * (p.block_tokens + 1) * (rows * key_units(p) * kSimdLanes + kDeltaTokenWords) *
         static_cast<uint32_t>(sizeof(float));
}

}  // namespace

uint32_t key_units(const DeltaParams& p) { return p.key_dim <= 128 ? 4 : 8; }

Plan plan_delta_heads(const DeltaKernel& kernel, DeltaParams& p, uint32_t heads, uint32_t rows,
                      const StateTable& states, const Platform& platform) {
  p.has_states = states.is_null() ? 0 : 1;
  p.block_tokens = kDeltaStagers * kDeltaStageUnits / key_units(p);
  if (block_bytes(p, rows) > platform.shared_bytes_max()) p.block_tokens = kDeltaBlockMin;
  Plan plan =
      make_plan(!states.segments.is_null() ? kernel.segments : kernel.heads,
                {groups_for(p.value_dim, kDeltaColumns), heads, states.sequences()}, kDeltaThreads);
  plan.shared_bytes = block_bytes(p, rows);
  plan.set_params(p);
  return plan;
}

void bind_states(Plan& plan, const StateTable& states, const Tensor& out) {
  if (states.segments.is_null()) plan.bind(range_of_state(states.state, Access::kReadWrite));
  bind_output(plan, out);
  plan.bind(states.addresses);
  if (!states.segments.is_null()) plan.bind(states.segments.segments);
}

}  // namespace moeflux::gpu
