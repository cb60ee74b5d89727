#include "backend/ops/mul_activated.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/attention_plans.h"
#include "backend/gpu/launch/mma_linear_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"
#include "backend/gpu/ops/plans.h"

namespace moeflux::gpu {
namespace {

Plan plan_gate(const ops::MulActivated& op) {
  RowsParams p = rows_params(op.out, op.x, op.gate);
  p.wide = has_wide_rows(op.out, op.x, op.gate) ? 1 : 0;
  Plan plan = columns_plan(KernelId::mul_activated_rows, op.out, p.wide);
  p.activation = activation_code(op.activation);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.gate, Access::kRead));
  bind_output(plan, op.out);
  return plan;
}

}  // namespace

void run(GpuContext& gpu, const ops::MulActivated& op) {
  if (gpu.fuse(op) == Action::kLaunch) return gpu.record(plan_gate(op));
  Recorder& recorder = gpu.recorder();
  Waiting& waiting = gpu.waiting();
  if (waiting.attention) {
    recorder.record(plan_gated(*waiting.attention, op.gate));
  } else if (!waiting.products.empty()) {
    add_to_product(waiting, op);
    record_products(recorder, waiting);
  } else if (waiting.heads.empty()) {
    recorder.record(plan_delta_one(recorder, waiting.delta, op.gate, op.activation),
                    waiting.delta.states.writes());
  } else {
    recorder.record(plan_norm(waiting.heads[0].norm, op.gate, op.activation));
  }
  waiting.clear();
}

}  // namespace moeflux::gpu
