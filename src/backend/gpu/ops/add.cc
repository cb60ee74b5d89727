#include "backend/ops/add.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::Add& op) {
  if (gpu.fuse(op) != Action::kLaunch) return;
  Plan plan = element_plan(KernelId::add_rows, op.out);
  plan.set_params(rows_params(op.out, op.a, op.b));
  plan.bind(range_of(op.a, Access::kRead));
  plan.bind(range_of(op.b, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
