#include "backend/ops/read_streams.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::ReadStreams& op) {
  StreamGateParams p{};
  p.streams = static_cast<u32>(op.x.dim(1));
  p.cols = static_cast<u32>(op.x.shape.back());
  p.iterations = static_cast<u32>(op.options.iterations);
  p.epsilon = op.options.eps;
  p.makes_gates = op.kinds() > 1 ? 1 : 0;
  p.mixes = op.kinds() > 2 ? 1 : 0;
  p.magnitude = op.options.magnitude;
  p.write_epsilon = op.options.write_eps;
  p.wide = p.cols % 4 == 0 && is_wide(op.x) && is_wide(op.out) ? 1 : 0;
  Plan plan =
      make_plan(KernelId::read_streams,
                {groups_for(p.wide != 0 ? p.cols / 4 : p.cols, kStreamThreads) + p.makes_gates,
                 rows_of(op.out), 1},
                kStreamThreads);
  plan.set_params(p);
  plan.bind(range_of(op.logits, Access::kRead));
  plan.bind(range_of(op.options.scale, Access::kRead));
  plan.bind(range_of(op.options.base, Access::kRead));
  plan.bind(range_of(op.x, Access::kRead));
  bind_output(plan, op.gates.write);
  bind_output(plan, op.gates.mix);
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
