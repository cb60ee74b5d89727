#include "backend/ops/add_bias.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::AddBias& op) {
  Plan plan = element_plan(KernelId::add_bias_rows, op.x);
  plan.set_params(rows_params(op.x, {}, {}));
  plan.bind(range_of(op.bias, Access::kRead));
  plan.bind(range_of(op.x, Access::kReadWrite));
  gpu.record(plan);
}

}  // namespace moeflux::gpu
