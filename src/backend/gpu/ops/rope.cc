#include "backend/ops/rope.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"
#include "backend/gpu/ops/plans.h"

namespace moeflux::gpu {

Plan plan_rope(const ops::Rope& op) {
  RopeParams p{};
  const HeadsLayout layout = heads_layout(op.x);
  p.token_stride = layout.token_stride;
  p.head_stride = layout.head_stride;
  p.tokens = static_cast<u32>(op.x.dim(0));
  p.heads = static_cast<u32>(op.x.dim(1));
  p.half = static_cast<u32>(op.options.rotary_dim / 2);
  p.interleaved = op.options.interleaved ? 1 : 0;
  p.unit = static_cast<u32>(op.options.unit);
  p.factor = op.options.attention_factor;
  const uint64_t pairs = uint64_t{p.tokens} * p.heads * p.half;
  Plan plan =
      make_plan(KernelId::rope_heads, {groups_for(pairs, kRowsThreads), 1, 1}, kRowsThreads);
  plan.set_params(p);
  plan.bind(range_of(op.positions, Access::kRead));
  plan.bind(range_of(op.inverse_frequencies, Access::kRead));
  plan.bind(range_of(op.x, Access::kReadWrite));
  return plan;
}

void run(GpuContext& gpu, const ops::Rope& op) {
  if (op.options.rotary_dim < 2) return;
  if (gpu.fuse(op) == Action::kLaunch) gpu.record(plan_rope(op));
}

}  // namespace moeflux::gpu
