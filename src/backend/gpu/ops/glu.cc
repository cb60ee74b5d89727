#include "backend/ops/glu.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::Glu& op) {
  RowsParams p = rows_params(op.out, op.gate, op.up);
  p.wide = has_wide_rows(op.out, op.gate, op.up) ? 1 : 0;
  Plan plan = columns_plan(KernelId::glu_rows, op.out, p.wide);
  p.activation = activation_code(op.options.activation);
  p.factor = op.options.alpha;
  p.limit = op.options.limit;
  p.up_offset = op.options.up_offset;
  plan.set_params(p);
  plan.bind(range_of(op.gate, Access::kRead));
  plan.bind(range_of(op.up, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
