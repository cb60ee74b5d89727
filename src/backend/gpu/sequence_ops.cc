// The causal convolution of a sequence as plans.
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kThreads = 128;

}  // namespace

void GpuEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, Tensor state) {
  const int64_t channels = out.shape.back();
  const int64_t taps = weight.dim(1);
  MF_CHECK(x.shape == out.shape && weight.dim(0) == channels && state.dim(0) == taps - 1 &&
           state.dim(1) == channels && state.is_contiguous() && weight.is_contiguous());
  if (join_conv(out, x, weight, state)) return;
  ConvParams p{};
  p.x_stride = row_stride(x);
  p.out_stride = row_stride(out);
  p.tokens = rows_of(x);
  p.channels = static_cast<u32>(channels);
  p.taps = static_cast<u32>(taps);
  const uint32_t columns = groups_for(p.channels, kThreads);
  if (p.tokens == 1 && p.taps <= kConvOneTapsMax) {
    Plan one = make_plan(KernelId::causal_conv_t1, {columns, 1, 1}, kThreads);
    one.set_params(p);
    one.bind(range_of(x, Access::kRead));
    one.bind(range_of(weight, Access::kRead));
    one.bind(range_of(state, Access::kReadWrite));
    bind_output(one, out);
    return record(one);
  }
  const bool is_held = p.taps <= kConvTapsHeld;
  p.wide = is_held && p.channels % 4 == 0 && is_wide(x) && is_wide(out) && is_wide(state) ? 1 : 0;
  Plan plan = make_plan(KernelId::causal_conv_rows,
                        {groups_for(p.wide != 0 ? p.channels / 4 : p.channels, kThreads),
                         groups_for(p.tokens, kConvTokens), 1},
                        kThreads);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  plan.bind(range_of(weight, Access::kRead));
  plan.bind(range_of(state, is_held ? Access::kReadWrite : Access::kRead));
  bind_output(plan, out);
  record(plan);
  if (is_held) return;
  Plan shift = make_plan(KernelId::causal_conv_shift, {columns, 1, 1}, kThreads);
  shift.set_params(p);
  shift.bind(range_of(x, Access::kRead));
  shift.bind(range_of(state, Access::kReadWrite));
  record(shift);
}

}  // namespace moeflux::gpu
