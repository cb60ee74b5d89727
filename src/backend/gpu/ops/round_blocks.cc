#include "backend/ops/round_blocks.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::RoundBlocks& op) {
  Plan plan = element_plan(KernelId::round_blocks, op.x);
  RoundBlocksParams p{};
  p.x = rows_params(op.x, {}, {});
  p.format = static_cast<u32>(op.to);
  p.block = static_cast<u32>(rounded_columns(op.to));
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kReadWrite));
  gpu.record(plan);
}

}  // namespace moeflux::gpu
