// The convolution of one sequence, or of several together where it has few taps.
#include "backend/ops/causal_conv.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kConvThreads = 128;

void record_conv(Recorder& recorder, const ops::CausalConv& op, const StateTable& states) {
  const uint32_t cores = recorder.platform().cores();
  ConvParams p{};
  p.x_stride = row_stride(op.x);
  p.out_stride = row_stride(op.out);
  p.tokens = states.tokens_each(rows_of(op.x));
  p.channels = static_cast<u32>(op.out.shape.back());
  p.taps = static_cast<u32>(op.weight.dim(1));
  p.activation = activation_code(op.options.activation);
  p.has_bias = op.options.bias.is_null() ? 0 : 1;
  p.has_states = states.is_null() ? 0 : 1;
  const uint32_t columns = groups_for(p.channels, kConvThreads);
  if (p.tokens == 1 && p.taps <= kConvOneTapsMax) {
    Plan one = make_plan(KernelId::causal_conv_t1, {columns, states.sequences(), 1}, kConvThreads);
    one.set_params(p);
    one.bind(range_of(op.x, Access::kRead));
    one.bind(range_of(op.weight, Access::kRead));
    one.bind(range_of(op.options.bias, Access::kRead));
    one.bind(range_of_state(states.state, Access::kReadWrite));
    bind_output(one, op.out);
    one.bind(states.addresses);
    return recorder.record(one, states.writes());
  }
  const bool is_held = p.taps <= kConvTapsHeld;
  // Groups of four channels a thread, as long as all cores have some: few tokens wait for memory.
  const bool has_segments = !states.segments.is_null();
  const uint32_t blocks =
      has_segments ? states.segments.num_blocks : groups_for(p.tokens, kConvTokens);
  const bool fills = groups_for(p.channels / 4, kConvThreads) * blocks >= cores;
  p.wide =
      fills && is_held && p.channels % 4 == 0 && is_wide(op.x) && is_wide(op.out) && states.are_wide
          ? 1
          : 0;
  Plan plan =
      make_plan(has_segments ? KernelId::causal_conv_segments : KernelId::causal_conv_rows,
                {groups_for(p.wide != 0 ? p.channels / 4 : p.channels, kConvThreads), blocks, 1},
                kConvThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.weight, Access::kRead));
  plan.bind(range_of(op.options.bias, Access::kRead));
  if (has_segments) {
    bind_output(plan, op.out);
    plan.bind(states.addresses);
    plan.bind(states.segments.segments);
    plan.bind(states.segments.blocks);
    return recorder.record(plan, states.writes());
  }
  plan.bind(range_of_state(states.state, is_held ? Access::kReadWrite : Access::kRead));
  bind_output(plan, op.out);
  recorder.record(plan);
  if (is_held) return;
  Plan shift = make_plan(KernelId::causal_conv_shift, {columns, 1, 1}, kConvThreads);
  shift.set_params(p);
  shift.bind(range_of(op.x, Access::kRead));
  shift.bind(range_of_state(states.state, Access::kReadWrite));
  recorder.record(shift);
}

}  // namespace

void run(GpuContext& gpu, const ops::CausalConv& op) {
  static_assert(u32{kConvOneTapsMax} == u32{kConvTapsHeld});
  const Joins joins = op.weight.dim(1) <= int64_t{kConvOneTapsMax} ? Joins::kAll : Joins::kNone;
  for_each_states(gpu, op, joins, [&](const ops::CausalConv& own, const StateTable& states) {
    const Action action = states.is_null() ? gpu.fuse(own) : Action::kLaunch;
    gpu.flush();
    if (action == Action::kLaunch) record_conv(gpu.recorder(), own, states);
  });
}

}  // namespace moeflux::gpu
