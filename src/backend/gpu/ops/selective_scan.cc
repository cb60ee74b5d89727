#include "backend/ops/selective_scan.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/delta_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/supports.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

DeltaParams scan_params(const ops::SelectiveScan& scan, const StateTable& states) {
  const ScanOptions& o = scan.options;
  const int64_t inner = o.heads * o.head_dim;
  DeltaParams p{};
  p.qkv_stride = row_stride(scan.xbc);
  p.a_stride = row_stride(scan.dt);
  p.out = heads_layout(scan.out);
  p.key_at = static_cast<u32>(inner);
  p.query_at = static_cast<u32>(inner + o.groups * o.state_dim);
  p.tokens = states.tokens_each(rows_of(scan.xbc));
  p.key_heads = static_cast<u32>(o.groups);
  p.heads_together = static_cast<u32>(o.heads / o.groups);
  p.key_dim = static_cast<u32>(o.state_dim);
  p.value_dim = static_cast<u32>(o.head_dim);
  p.wide = is_wide(scan.xbc) && p.key_dim % 4 == 0 && p.value_dim % 4 == 0;
  return p;
}

Plan plan_scan(const ops::SelectiveScan& scan, const StateTable& states, const Platform& platform) {
  DeltaParams p = scan_params(scan, states);
  constexpr DeltaKernel kScan{KernelId::selective_scan_heads, KernelId::selective_scan_segments};
  Plan plan = plan_delta_heads(kScan, p, static_cast<u32>(scan.options.heads), 2, states, platform);
  for (const Tensor& tensor :
       {scan.xbc, scan.dt, scan.weights.skip, scan.weights.a_log, scan.weights.dt_bias}) {
    plan.bind(range_of(tensor, Access::kRead));
  }
  bind_states(plan, states, scan.out);
  return plan;
}

}  // namespace

Status supports(const Platform& /*platform*/, const ops::SelectiveScan& op) {
  if (op.options.state_dim <= kRowDeltaKeyDimMax) return {};
  return make_error(ErrorCode::kUnsupported, "selective_scan: states of {} per channel, at most {}",
                    op.options.state_dim, kRowDeltaKeyDimMax);
}

void run(GpuContext& gpu, const ops::SelectiveScan& op) {
  for_each_states(gpu, op, Joins::kAll,
                  [&](const ops::SelectiveScan& own, const StateTable& states) {
                    gpu.flush();
                    gpu.recorder().record(plan_scan(own, states, gpu.platform()), states.writes());
                  });
}

}  // namespace moeflux::gpu
