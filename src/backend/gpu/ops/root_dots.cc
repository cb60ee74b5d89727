#include "backend/ops/root_dots.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::RootDots& op) {
  RootDotParams p{};
  p.cols = static_cast<u32>(op.a.shape.back());
  p.scale = op.options.scale;
  p.least = op.options.least;
  p.wide = p.cols % 4 == 0 && is_wide(op.a) && is_wide(op.b) ? 1 : 0;
  Plan plan = make_plan(KernelId::root_dots, {rows_of(op.a), 1, 1}, kStreamThreads,
                        kStreamThreads / kSimdLanes * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(op.a, Access::kRead));
  plan.bind(range_of(op.b, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
