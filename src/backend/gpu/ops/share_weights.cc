#include "backend/ops/share_weights.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::ShareWeights& op) {
  constexpr uint32_t kThreads = 32;
  ShareWeightsParams p{};
  p.logits_stride = row_stride(op.logits);
  p.tokens = rows_of(op.logits);
  p.top_k = static_cast<u32>(op.weights.dim(1));
  p.shared = static_cast<u32>(op.out.dim(1));
  p.scale = op.scale;
  Plan plan = make_plan(KernelId::share_weights, {groups_for(p.tokens, kThreads), 1, 1}, kThreads);
  plan.set_params(p);
  plan.bind(range_of(op.logits, Access::kRead));
  plan.bind(range_of(op.weights, Access::kReadWrite));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
