#include "backend/ops/embed.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/matmul_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::Embed& op) {
  EmbedParams p{};
  p.table = matrix_layout(op.table);
  p.out = rows_layout(op.out);
  p.tokens = rows_of(op.out);
  Plan plan = make_plan(KernelId::embed_rows,
                        {groups_for(p.table.cols, kMatmulThreads), p.tokens, 1}, kMatmulThreads);
  plan.set_params(p);
  gpu.record(bound(plan, op.out, op.token_ids, op.table));
}

}  // namespace moeflux::gpu
