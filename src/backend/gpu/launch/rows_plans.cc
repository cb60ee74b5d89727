#include "backend/gpu/launch/rows_plans.h"

#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

RowsParams rows_params(const Tensor& out, const Tensor& a, const Tensor& b) {
  RowsParams p{};
  p.out = rows_layout(out);
  if (!a.is_null()) p.a = rows_layout(a);
  if (!b.is_null()) p.b = rows_layout(b);
  p.rows = rows_of(out);
  p.cols = static_cast<u32>(out.shape.back());
  return p;
}

Plan element_plan(KernelId kernel, const Tensor& out) {
  return make_plan(kernel,
                   {groups_for(static_cast<uint64_t>(out.num_elements()), kRowsThreads), 1, 1},
                   kRowsThreads);
}

Plan bias_plan(const Tensor& x, const Tensor& bias) {
  Plan plan = element_plan(KernelId::add_bias_rows, x);
  plan.set_params(rows_params(x, {}, {}));
  plan.bind(range_of(bias, Access::kRead));
  plan.bind(range_of(x, Access::kReadWrite));
  return plan;
}

Plan copy_plan(const Tensor& out, const Tensor& x) {
  Plan plan = element_plan(KernelId::copy_rows, out);
  plan.set_params(rows_params(out, x, {}));
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  return plan;
}

bool has_wide_rows(const Tensor& out, const Tensor& a, const Tensor& b) {
  return out.shape.back() % 4 == 0 && is_wide(out) && is_wide(a) &&
         (b.is_null() || b.shape.back() == 1 || is_wide(b));
}

Plan columns_plan(KernelId kernel, const Tensor& out, u32 wide) {
  const auto elements = static_cast<uint64_t>(out.num_elements());
  return make_plan(kernel, {groups_for(wide != 0 ? elements / 4 : elements, kRowsThreads), 1, 1},
                   kRowsThreads);
}

}  // namespace moeflux::gpu
