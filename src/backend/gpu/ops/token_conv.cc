#include "backend/ops/token_conv.h"

#include <algorithm>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

// The rows of a sequence, or of several together.
Plan plan_conv(const ops::TokenConv& op, const StateTable& states) {
  constexpr uint32_t kThreads = 128;
  TokenConvParams p{};
  p.x_stride = row_stride(op.x);
  p.out_stride = row_stride(op.out);
  p.tokens = states.tokens_each(rows_of(op.x));
  p.channels = static_cast<u32>(op.x.dim(1));
  p.groups = static_cast<u32>(op.shares.dim(1));
  p.taps = static_cast<u32>(op.weight.dim(0));
  p.group_tokens = std::max<u32>(kConvTokens, p.taps - 1);
  p.has_states = states.is_null() ? 0 : 1;
  const uint32_t columns = groups_for(p.channels, kThreads);
  const bool has_segments = !states.segments.is_null();
  Plan plan = has_segments
                  ? make_plan(KernelId::token_conv_segments,
                              {columns, states.segments.num_blocks, 1}, kThreads)
                  : make_plan(KernelId::token_conv,
                              {columns, groups_for(p.tokens, p.group_tokens), states.sequences()},
                              kThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.weight, Access::kRead));
  plan.bind(range_of(op.shares, Access::kRead));
  if (!has_segments) plan.bind(range_of_state(states.state, Access::kReadWrite));
  bind_output(plan, op.out);
  plan.bind(states.addresses);
  if (has_segments) {
    plan.bind(states.segments.segments);
    plan.bind(states.segments.blocks);
  }
  return plan;
}

}  // namespace

void run(GpuContext& gpu, const ops::TokenConv& op) {
  // Blocks of segments have kConvTokens tokens, and only the first one's may look into the state.
  const Joins joins = op.weight.dim(0) - 1 <= int64_t{kConvTokens} ? Joins::kAll : Joins::kSingle;
  for_each_states(gpu, op, joins, [&](const ops::TokenConv& own, const StateTable& states) {
    gpu.flush();
    gpu.recorder().record(plan_conv(own, states), states.writes());
  });
}

}  // namespace moeflux::gpu
