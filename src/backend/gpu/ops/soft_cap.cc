#include "backend/ops/soft_cap.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::SoftCap& op) {
  Plan plan = element_plan(KernelId::soft_cap_rows, op.x);
  RowsParams p = rows_params(op.x, {}, {});
  p.factor = op.cap;
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kReadWrite));
  gpu.record(plan);
}

}  // namespace moeflux::gpu
