#include "backend/ops/mix_blocks.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"
#include "backend/gpu/supports.h"
#include "base/format.h"

namespace moeflux::gpu {

Status supports(const Platform& /*platform*/, const ops::MixBlocks& op) {
  if (op.blocks.dim(0) < int64_t{kMixStatesMax}) return {};
  return make_error(ErrorCode::kUnsupported, "mix_blocks: {} blocks, at most {}", op.blocks.dim(0),
                    kMixStatesMax - 1);
}

void run(GpuContext& gpu, const ops::MixBlocks& op) {
  MixBlocksParams p{};
  p.states = static_cast<u32>(op.blocks.dim(0)) + 1;
  p.tokens = rows_of(op.out);
  p.cols = static_cast<u32>(op.out.dim(1));
  p.sums_normed = op.options.sums_normed ? 1 : 0;
  p.scale = op.options.scale;
  p.epsilon = op.options.eps;
  const bool wide = p.cols % 4 == 0 && is_wide(op.blocks) && is_wide(op.last) && is_wide(op.out) &&
                    is_wide(op.query);
  p.wide = wide ? 1 : 0;
  const uint32_t words = uint32_t{kMixStatesMax} * (2 * kStreamThreads / kSimdLanes + 2);
  Plan plan = make_plan(KernelId::mix_blocks, {p.tokens, 1, 1}, kStreamThreads,
                        words * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(op.blocks, Access::kRead));
  plan.bind(range_of(op.last, Access::kRead));
  plan.bind(range_of(op.query, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
}

}  // namespace moeflux::gpu
