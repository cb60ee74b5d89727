#include "backend/ops/copy.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::Copy& op) {
  Plan plan = element_plan(KernelId::copy_rows, op.out);
  plan.set_params(rows_params(op.out, op.x, {}));
  plan.bind(range_of(op.x, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
