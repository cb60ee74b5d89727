// The causal convolution as plans: of a sequence, or of a token of each of several.
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kConvThreads = 128;

}  // namespace

void record_conv(Recorder& recorder, const ConvOp& op) {
  const auto& [out, x, weight, state, options, states] = op;
  ConvParams p{};
  p.x_stride = row_stride(x);
  p.out_stride = row_stride(out);
  p.tokens = states.tokens_each(rows_of(x));
  p.channels = static_cast<u32>(out.shape.back());
  p.taps = static_cast<u32>(weight.dim(1));
  p.activation = activation_code(options.activation);
  p.has_bias = options.bias.is_null() ? 0 : 1;
  p.has_states = states.is_null() ? 0 : 1;
  const uint32_t columns = groups_for(p.channels, kConvThreads);
  if (p.tokens == 1 && p.taps <= kConvOneTapsMax) {
    Plan one = make_plan(KernelId::causal_conv_t1, {columns, states.sequences(), 1}, kConvThreads);
    one.set_params(p);
    one.bind(range_of(x, Access::kRead));
    one.bind(range_of(weight, Access::kRead));
    one.bind(range_of(options.bias, Access::kRead));
    one.bind(range_of(state, Access::kReadWrite));
    bind_output(one, out);
    one.bind(states.addresses);
    return recorder.record(one, writes_of(states));
  }
  MF_CHECK(states.is_null());
  const bool is_held = p.taps <= kConvTapsHeld;
  p.wide = is_held && p.channels % 4 == 0 && is_wide(x) && is_wide(out) && is_wide(state) ? 1 : 0;
  Plan plan = make_plan(KernelId::causal_conv_rows,
                        {groups_for(p.wide != 0 ? p.channels / 4 : p.channels, kConvThreads),
                         groups_for(p.tokens, kConvTokens), 1},
                        kConvThreads);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  plan.bind(range_of(weight, Access::kRead));
  plan.bind(range_of(options.bias, Access::kRead));
  plan.bind(range_of(state, is_held ? Access::kReadWrite : Access::kRead));
  bind_output(plan, out);
  recorder.record(plan);
  if (is_held) return;
  Plan shift = make_plan(KernelId::causal_conv_shift, {columns, 1, 1}, kConvThreads);
  shift.set_params(p);
  shift.bind(range_of(x, Access::kRead));
  shift.bind(range_of(state, Access::kReadWrite));
  recorder.record(shift);
}

}  // namespace moeflux::gpu
