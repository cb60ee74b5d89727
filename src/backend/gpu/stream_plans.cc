// Residuals of several streams as plans.
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

static_assert(kStreamsMax == kExpandStreamsMax && kStreamsMax * kStreamsMax <= kSimdLanes);

constexpr uint32_t kGateThreads = 64;
constexpr uint32_t kThreads = 128;

Plan plan_write_gates(const StreamGates& gates, const Tensor& logits, float scale) {
  WriteGateParams p{};
  p.count = static_cast<u32>(logits.num_elements());
  p.scale = scale;
  Plan plan = make_plan(KernelId::write_gates, {groups_for(p.count, kThreads), 1, 1}, kThreads);
  plan.set_params(p);
  plan.bind(range_of(logits, Access::kRead));
  bind_output(plan, gates.write);
  return plan;
}

}  // namespace

Plan plan_stream_gates(const StreamGates& gates, const Tensor& logits,
                       const StreamGateOptions& options) {
  if (gates.read.is_null()) return plan_write_gates(gates, logits, options.write_scale);
  StreamGateParams p{};
  p.tokens = rows_of(logits);
  p.streams = static_cast<u32>(gates.read.dim(1));
  p.iterations = static_cast<u32>(options.iterations);
  p.epsilon = options.eps;
  Plan plan = make_plan(KernelId::stream_gates,
                        {groups_for(p.tokens, kGateThreads / kSimdLanes), 1, 1}, kGateThreads);
  plan.set_params(p);
  plan.bind(range_of(logits, Access::kRead));
  plan.bind(range_of(options.scale, Access::kRead));
  plan.bind(range_of(options.base, Access::kRead));
  bind_output(plan, gates.read);
  bind_output(plan, gates.write);
  bind_output(plan, gates.mix);
  return plan;
}

Plan plan_expand_streams(const ExpandOp& op) {
  ExpandParams p{};
  p.tokens = rows_of(op.branch);
  p.streams = static_cast<u32>(op.x.dim(1));
  p.cols = static_cast<u32>(op.x.shape.back());
  p.mixes = op.gates.mix.is_null() ? 0 : 1;
  p.wide = p.cols % 4 == 0 && is_wide(op.x) && is_wide(op.out) && is_wide(op.branch) ? 1 : 0;
  p.branch_stride = row_stride(op.branch);
  Plan plan =
      make_plan(KernelId::expand_streams,
                {groups_for(p.wide != 0 ? p.cols / 4 : p.cols, kThreads), p.tokens, 1}, kThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.branch, Access::kRead));
  plan.bind(range_of(op.gates.write, Access::kRead));
  plan.bind(range_of(op.gates.mix, Access::kRead));
  bind_output(plan, op.out);
  return plan;
}

Plan plan_root_dots(const Tensor& out, const Tensor& a, const Tensor& b,
                    const RootDotOptions& options) {
  RootDotParams p{};
  p.rows = rows_of(a);
  p.cols = static_cast<u32>(a.shape.back());
  p.scale = options.scale;
  p.least = options.least;
  p.wide = p.cols % 4 == 0 && is_wide(a) && is_wide(b) ? 1 : 0;
  Plan plan =
      make_plan(KernelId::root_dots, {groups_for(p.rows, kThreads / kSimdLanes), 1, 1}, kThreads);
  plan.set_params(p);
  plan.bind(range_of(a, Access::kRead));
  plan.bind(range_of(b, Access::kRead));
  bind_output(plan, out);
  return plan;
}

}  // namespace moeflux::gpu
