#include "backend/ops/pool_rows.h"

#include <algorithm>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

// The rows of a sequence, or one of each of several.
Plan plan_pool(const ops::PoolRows& op, const StateTable& states) {
  constexpr uint32_t kThreads = 64;
  constexpr uint32_t kTokens = 8;
  PoolParams p{};
  p.tokens = states.tokens_each(rows_of(op.x));
  p.has_states = states.is_null() ? 0 : 1;
  p.cols = static_cast<u32>(op.x.shape.back());
  p.out_cols = static_cast<u32>(op.out.shape.back());
  p.unit = static_cast<u32>(op.unit);
  p.kept = op.gates.overlaps ? 2 * p.unit : p.unit;
  p.weighs = op.gates.gate.is_null() ? 0 : 1;
  p.group_tokens = std::max(kTokens, p.kept - 1);
  Plan plan = make_plan(
      KernelId::pool_rows,
      {groups_for(p.out_cols, kThreads), groups_for(p.tokens, p.group_tokens), states.sequences()},
      kThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.gates.gate, Access::kRead));
  plan.bind(range_of(op.gates.bias, Access::kRead));
  plan.bind(range_of(op.positions, Access::kRead));
  plan.bind(range_of_state(states.state, Access::kReadWrite));
  bind_output(plan, op.out);
  plan.bind(states.addresses);
  return plan;
}

}  // namespace

void run(GpuContext& gpu, const ops::PoolRows& op) {
  for_each_states(gpu, op, Joins::kSingle, [&](const ops::PoolRows& own, const StateTable& states) {
    gpu.flush();
    gpu.recorder().record(plan_pool(own, states), states.writes());
  });
}

}  // namespace moeflux::gpu
