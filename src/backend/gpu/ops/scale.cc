#include "backend/ops/scale.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::Scale& op) {
  Plan plan = element_plan(KernelId::scale_rows, op.out);
  RowsParams p = rows_params(op.out, op.x, {});
  p.factor = op.factor;
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
