#include "backend/ops/sum_rows.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

void run(GpuContext& gpu, const ops::SumRows& op) {
  constexpr uint32_t kThreads = 64;
  for_each_part(op, [&](const ops::SumRows& one) {
    if (one.rows() == 0) return;
    SumRowsParams p{};
    p.rows = rows_of(one.x);
    p.cols = static_cast<u32>(one.x.shape.back());
    p.stride = row_stride(one.x);
    Plan plan = make_plan(KernelId::sum_rows, {groups_for(p.cols, kThreads), 1, 1}, kThreads);
    plan.set_params(p);
    plan.bind(range_of(one.x, Access::kRead));
    plan.bind(range_of(one.sequences.front().state, Access::kReadWrite));
    gpu.record(plan);
  });
}

}  // namespace moeflux::gpu
