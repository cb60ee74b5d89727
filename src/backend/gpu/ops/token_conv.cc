// The convolution of one sequence, then the shift of its state.
#include "backend/ops/token_conv.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kConvThreads = 128;

void convolve(GpuContext& gpu, const ops::TokenConv& op) {
  const Tensor& state = op.sequences.front().state;
  TokenConvParams p{};
  p.x_stride = row_stride(op.x);
  p.out_stride = row_stride(op.out);
  p.channels = static_cast<u32>(op.x.dim(1));
  p.groups = static_cast<u32>(op.shares.dim(1));
  p.taps = static_cast<u32>(op.weight.dim(0));
  const uint32_t columns = groups_for(p.channels, kConvThreads);
  Plan plan = make_plan(KernelId::token_conv, {columns, rows_of(op.x), 1}, kConvThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.weight, Access::kRead));
  plan.bind(range_of(op.shares, Access::kRead));
  plan.bind(range_of_state(state, Access::kRead));
  bind_output(plan, op.out);
  gpu.record(plan);
  ConvParams next{};
  next.x_stride = p.x_stride;
  next.tokens = rows_of(op.x);
  next.channels = p.channels;
  next.taps = p.taps;
  Plan shift = make_plan(KernelId::causal_conv_shift, {columns, 1, 1}, kConvThreads);
  shift.set_params(next);
  shift.bind(range_of(op.x, Access::kRead));
  shift.bind(range_of_state(state, Access::kReadWrite));
  gpu.record(shift);
}

}  // namespace

void run(GpuContext& gpu, const ops::TokenConv& op) {
  for_each_part(op, [&](const ops::TokenConv& own) {
    if (own.rows() > 0) convolve(gpu, own);
  });
}

}  // namespace moeflux::gpu
