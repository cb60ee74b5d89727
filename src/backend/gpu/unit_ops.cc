// Products of quantised matrices with many tokens on matrix units as plans: activations are split
// once for all that follow.
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"
#include "backend/gpu/unit_plans.h"

namespace moeflux::gpu {

bool GpuEncoder::use_units(const Weight& weight) const {
  return platform_.has_matrix_units() && fits_units(weight);
}

void GpuEncoder::record_split(const Tensor& x, uint32_t rows, const Binding& split,
                              const Binding& sums) {
  UnitSplitParams p{};
  p.x_stride = row_stride(x);
  p.cols = static_cast<u32>(x.shape.back());
  p.wide = is_wide(x) ? 1 : 0;
  Plan plan = make_plan(KernelId::unit_split, {groups_for(p.cols / 8, kUnitThreads), rows, 1},
                        kUnitThreads);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  plan.bind(split);
  plan.bind(sums);
  record(plan);
}

void GpuEncoder::record_products_of_many(const Products& products) {
  const Tensor& x = products.front().x;
  const uint32_t n = rows_of(x);
  const auto cols = static_cast<uint64_t>(x.shape.back());
  if (split_x_.is_null() || !are_same(split_x_, x)) {
    const Result<Binding> space = workspace_.take(split_rows_bytes(n, cols));
    if (!space.ok()) {
      fail(space.error());
      return;
    }
    const size_t begin = split_sums_begin(n, cols);
    split_ = part_of(*space, 0, begin, Access::kOverwrite);
    split_sums_ = part_of(*space, begin, split_rows_bytes(n, cols) - begin, Access::kOverwrite);
    record_split(x, n, split_, split_sums_);
    split_.access = split_sums_.access = Access::kRead;
  }
  UnitLinearParams p{};
  p.cols = static_cast<u32>(cols);
  p.tokens = n;
  const uint32_t groups = list_matrices(p, products, kUnitGroupRows);
  Plan plan = make_unit_many_plan(KernelId::unit_linear, {groups, groups_for(n, kUnitTokens), 1});
  plan.set_params(p);
  for (const WaitingProduct& product : products) bind_weight(plan, product.weight);
  for (size_t i = products.size(); i < kUnitMatricesMax; ++i) bind_weight(plan, {});
  plan.bind(split_);
  plan.bind(split_sums_);
  for (const WaitingProduct& product : products) bind_output(plan, product.out);
  for (size_t i = products.size(); i < kUnitMatricesMax; ++i) plan.bind({});
  record(plan);
  split_x_ = x;
  for (const WaitingProduct& product : products) {
    if (have_overlap(x, product.out)) split_x_ = {};
  }
}

}  // namespace moeflux::gpu
