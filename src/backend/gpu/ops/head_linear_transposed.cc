#include "backend/ops/head_linear_transposed.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/matmul_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::HeadLinearTransposed& op) {
  const LinearParams p = head_params(op.out, op.x, op.weight, op.rows);
  if (takes_unpacked(p, /*transposed=*/true, gpu.platform())) {
    gpu.flush();
    return record_unpacked(gpu.recorder(), p, /*transposed=*/true, op.out, op.x, op.weight);
  }
  const uint32_t tile = p.tokens <= 4 ? 4 : 16;
  Plan plan = make_plan(
      tile == 4 ? KernelId::head_linear_transposed_t4 : KernelId::head_linear_transposed_t16,
      {groups_for(p.weight.cols, kMatmulThreads), groups_for(p.tokens, tile), p.heads},
      kMatmulThreads, kHeadStageRows * tile * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  gpu.record(bound(plan, op.out, op.x, op.weight));
}

}  // namespace moeflux::gpu
