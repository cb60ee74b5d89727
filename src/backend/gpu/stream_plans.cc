// Residuals of several streams as plans.
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

static_assert(kStreamsMax == kExpandStreamsMax && kStreamsMax * kStreamsMax <= kSimdLanes);

constexpr uint32_t kStreamThreads = 128;

}  // namespace

Plan plan_read_streams(const ReadStreamsOp& op) {
  StreamGateParams p{};
  p.streams = static_cast<u32>(op.x.dim(1));
  p.cols = static_cast<u32>(op.x.shape.back());
  p.iterations = static_cast<u32>(op.options.iterations);
  p.epsilon = op.options.eps;
  p.makes_gates = op.gates.write.is_null() ? 0 : 1;
  p.wide = p.cols % 4 == 0 && is_wide(op.x) && is_wide(op.out) ? 1 : 0;
  Plan plan =
      make_plan(KernelId::read_streams,
                {groups_for(p.wide != 0 ? p.cols / 4 : p.cols, kStreamThreads) + p.makes_gates,
                 rows_of(op.out), 1},
                kStreamThreads);
  plan.set_params(p);
  plan.bind(range_of(op.logits, Access::kRead));
  plan.bind(range_of(op.options.scale, Access::kRead));
  plan.bind(range_of(op.options.base, Access::kRead));
  plan.bind(range_of(op.x, Access::kRead));
  bind_output(plan, op.gates.write);
  bind_output(plan, op.gates.mix);
  bind_output(plan, op.out);
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
  Plan plan = make_plan(
      KernelId::expand_streams,
      {groups_for(p.wide != 0 ? p.cols / 4 : p.cols, kStreamThreads), p.tokens, 1}, kStreamThreads);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.branch, Access::kRead));
  plan.bind(range_of(op.gates.write, Access::kRead));
  plan.bind(range_of(op.gates.mix, Access::kRead));
  bind_output(plan, op.out);
  return plan;
}

Plan plan_sum_gated(const Tensor& out, const Tensor& x, const Tensor& gates) {
  SumGatedParams p{};
  p.streams = static_cast<u32>(x.dim(1));
  p.cols = static_cast<u32>(x.shape.back());
  p.wide = p.cols % 4 == 0 && is_wide(x) && is_wide(gates) && is_wide(out) ? 1 : 0;
  Plan plan =
      make_plan(KernelId::sum_gated,
                {groups_for(p.wide != 0 ? p.cols / 4 : p.cols, kStreamThreads), rows_of(out), 1},
                kStreamThreads);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  plan.bind(range_of(gates, Access::kRead));
  bind_output(plan, out);
  return plan;
}

Plan plan_root_dots(const Tensor& out, const Tensor& a, const Tensor& b,
                    const RootDotOptions& options) {
  RootDotParams p{};
  p.cols = static_cast<u32>(a.shape.back());
  p.scale = options.scale;
  p.least = options.least;
  p.wide = p.cols % 4 == 0 && is_wide(a) && is_wide(b) ? 1 : 0;
  Plan plan = make_plan(KernelId::root_dots, {rows_of(a), 1, 1}, kStreamThreads,
                        kStreamThreads / kSimdLanes * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(a, Access::kRead));
  plan.bind(range_of(b, Access::kRead));
  bind_output(plan, out);
  return plan;
}

}  // namespace moeflux::gpu
