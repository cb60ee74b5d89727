#include "backend/ops/combine_experts.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::CombineExperts& op) {
  if (gpu.fuse(op) != Action::kLaunch) return;
  constexpr uint32_t kCombineThreads = 128;
  CombineParams p{};
  p.slot_stride = row_stride(op.slots);
  p.out_stride = row_stride(op.out);
  p.tokens = rows_of(op.out);
  p.top_k = static_cast<u32>(op.routes.weights.dim(1));
  p.cols = static_cast<u32>(op.out.shape.back());
  Plan plan = make_plan(KernelId::combine_slots, {groups_for(p.cols, kCombineThreads), p.tokens, 1},
                        kCombineThreads);
  plan.set_params(p);
  plan.bind(range_of(op.slots, Access::kRead));
  plan.bind(range_of(op.routes.weights, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
