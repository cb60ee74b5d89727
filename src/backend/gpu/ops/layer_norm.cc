#include "backend/ops/layer_norm.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::LayerNorm& op) {
  RowsParams p = rows_params(op.out, op.x, {});
  p.factor = op.eps;
  p.wide = p.cols % 4 == 0 && is_wide(op.x) && is_wide(op.out) && is_wide(op.weight) ? 1 : 0;
  Plan plan = make_plan(KernelId::layer_norm_rows,
                        {groups_for(p.rows, kNarrowThreads / kSimdLanes), 1, 1}, kNarrowThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.weight, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
