#include "backend/ops/rms_norm.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/rows_plans.h"
#include "backend/gpu/ops/plans.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kManyRows = 1 << 13;  // fill any GPU with a SIMD group each

// True when the rows of a SIMD group that begins with a multiple of kNarrowRows are a stride apart.
bool shares_inner(const RowsParams& p) {
  return p.out.extents[2] % kNarrowRows == 0 && p.a.extents[2] % kNarrowRows == 0 &&
         (p.has_gate == 0 || p.b.extents[2] % kNarrowRows == 0);
}

}  // namespace

// With a gate, rows are narrow.
Plan plan_norm(const ops::RmsNorm& norm, const Tensor& gate, Activation activation) {
  RowsParams p = rows_params(norm.out, norm.x, gate);
  p.factor = norm.eps;
  p.weights = norm.weight.is_null() ? 0 : rows_of(norm.weight);
  p.has_gate = gate.is_null() ? 0 : 1;
  p.activation = activation_code(activation);
  p.wide = p.cols % 4 == 0 && is_wide(norm.x) && is_wide(norm.out) && is_wide(norm.weight) &&
                   is_wide(gate)
               ? 1
               : 0;
  const bool narrow = norm.x.shape.back() <= int64_t{kNormNarrowCols};
  p.simd_rows = p.rows >= kManyRows && p.weights <= 1 && shares_inner(p) ? u32{kNarrowRows} : 1;
  Plan plan =
      narrow ? make_plan(KernelId::rms_norm_narrow,
                         {groups_for(p.rows, kNarrowThreads / kSimdLanes * p.simd_rows), 1, 1},
                         kNarrowThreads)
             : make_plan(KernelId::rms_norm_wide, {p.rows, 1, 1}, norm_threads(p.cols),
                         norm_threads(p.cols) / kSimdLanes * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(norm.x, Access::kRead));
  plan.bind(range_of(norm.weight, Access::kRead));
  if (narrow) plan.bind(range_of(gate, Access::kRead));
  bind_output(plan, norm.out);
  return plan;
}

void run(GpuContext& gpu, const ops::RmsNorm& op) {
  const bool is_one_weight = op.weight.is_null() || rows_of(op.weight) <= 1;
  if (!is_one_weight || gpu.fuse(op) == Action::kLaunch) gpu.record(plan_norm(op, {}, {}));
}

}  // namespace moeflux::gpu
