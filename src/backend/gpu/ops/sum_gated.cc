#include "backend/ops/sum_gated.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::SumGated& op) {
  SumGatedParams p{};
  p.streams = static_cast<u32>(op.x.dim(1));
  p.cols = static_cast<u32>(op.x.shape.back());
  p.wide = p.cols % 4 == 0 && is_wide(op.x) && is_wide(op.gates) && is_wide(op.out) ? 1 : 0;
  Plan plan =
      make_plan(KernelId::sum_gated,
                {groups_for(p.wide != 0 ? p.cols / 4 : p.cols, kStreamThreads), rows_of(op.out), 1},
                kStreamThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.gates, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
