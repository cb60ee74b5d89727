#include "backend/ops/expand_streams.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"

namespace moeflux::gpu {
namespace {

static_assert(kStreamsMax == kExpandStreamsMax && kStreamsMax * kStreamsMax <= kSimdLanes);

}  // namespace

void run(GpuContext& gpu, const ops::ExpandStreams& op) {
  ExpandParams p{};
  p.tokens = rows_of(op.branch);
  p.streams = static_cast<u32>(op.x.dim(1));
  p.cols = static_cast<u32>(op.x.shape.back());
  p.mixes = op.gates.mix.is_null() ? 0 : 1;
  p.from_logits = op.gates.write_is_logits ? 1 : 0;
  p.wide = p.cols % 4 == 0 && is_wide(op.x) && is_wide(op.out) && is_wide(op.branch) ? 1 : 0;
  p.branch_stride = row_stride(op.branch);
  Plan plan = make_plan(
      KernelId::expand_streams,
      {groups_for(p.wide != 0 ? p.cols / 4 : p.cols, kStreamThreads), p.tokens, 1}, kStreamThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.branch, Access::kRead));
  plan.bind(range_of(op.gates.write, Access::kRead));
  plan.bind(range_of(op.gates.mix, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
