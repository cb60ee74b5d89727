#include "backend/ops/clip_rows.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::ClipRows& op) {
  ClipRowsParams p{};
  p.rows = rows_of(op.x);
  p.cols = static_cast<u32>(op.x.shape.back());
  p.longest = op.longest;
  p.added = ops::ClipRows::kAdded;
  Plan plan = make_plan(KernelId::clip_rows,
                        {groups_for(p.rows, kNarrowThreads / kSimdLanes), 1, 1}, kNarrowThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kReadWrite));
  gpu.record(plan);
}

}  // namespace moeflux::gpu
