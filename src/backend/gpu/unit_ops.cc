// Products of quantised matrices on matrix units as plans: products of the same activations share a
// launch, activations of many tokens are split once for all that follow.
#include <algorithm>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"
#include "backend/gpu/unit_plans.h"

namespace moeflux::gpu {
namespace {

// Up to here groups make the norm of their activations by themselves; where there are more, a group
// has too little else to do.
constexpr uint32_t kNormedGroupsMax = 640;

// True when products of x can make it from what waits: all groups read the parts while the first
// one writes the sum and the norm.
bool can_norm_for_products(const WaitingChain& chain, const Tensor& x) {
  const Tensor& normed = chain.norm.out;
  if (normed.is_null() || !are_same(normed, x) || !chain.slots.is_null() || chain.adds > 1 ||
      x.shape.back() > int64_t{kUnitNormedColsMax}) {
    return false;
  }
  for (const Tensor& part : {chain.base, chain.addends[0]}) {
    if (have_overlap(normed, part) || have_overlap(chain.sums[1], part)) return false;
  }
  return !have_overlap(normed, chain.sums[1]);
}

// True when a launch of what waits may write `out` besides.
bool is_apart(const Waiting& waiting, const Tensor& out) {
  const WaitingChain& chain = waiting.chain;
  bool apart = !have_overlap(out, chain.norm.out);
  for (const Tensor& other : {chain.base, chain.addends[0], chain.sums[1]}) {
    apart = apart && !have_overlap(out, other);
  }
  for (const WaitingProduct& other : waiting.products) {
    apart = apart && !have_overlap(out, other.out);
  }
  return apart;
}

void bind_weight(Plan& plan, const Weight& weight) {
  plan.bind(range_of(weight.data, Access::kRead));
  plan.bind(range_of(weight.scales, Access::kRead));
  plan.bind(range_of(weight.biases, Access::kRead));
}

}  // namespace

bool GpuEncoder::use_units(const Weight& weight) const {
  return platform_.has_matrix_units() && fits_units(weight);
}

void GpuEncoder::add_unit_product(const Tensor& out, const Tensor& x, const Weight& weight) {
  if (rows_of(x) == 0) return;
  if (rows_of(x) > kSingleTokensMax) {
    flush_waiting();
    return record_unit_product(out, x, weight);
  }
  std::vector<WaitingProduct>& products = waiting_.products;
  const bool joins = products.empty()
                         ? can_norm_for_products(waiting_.chain, x)
                         : products.size() < kUnitMatricesMax && are_same(products[0].x, x);
  if (!joins || !is_apart(waiting_, out) || have_overlap(x, out)) flush_waiting();
  products.push_back({out, x, weight});
}

void GpuEncoder::record_products(const Waiting& waiting) {
  const std::vector<WaitingProduct>& products = waiting.products;
  const Tensor& x = products.front().x;
  UnitLinearParams p{};
  p.x_stride = row_stride(x);
  p.count = static_cast<u32>(products.size());
  p.cols = static_cast<u32>(x.shape.back());
  p.splits = unit_splits(x.shape.back(), kUnitSimds);
  p.wide = is_wide(x) ? 1 : 0;
  p.tokens = rows_of(x);
  const uint32_t rows_of_group = kUnitSimds / p.splits * kUnitRows;
  uint32_t groups = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    p.matrices[i] = unit_matrix(products[i].weight);
    p.out_strides[i] = row_stride(products[i].out);
    p.first_group[i] = groups;
    groups += groups_for(p.matrices[i].rows, rows_of_group);
  }
  const bool normed = waiting.has_chain() && groups <= kNormedGroupsMax;
  if (waiting.has_chain() && !normed) record_chain(waiting.chain);
  Plan plan = make_plan(normed ? KernelId::unit_normed_linear_one : KernelId::unit_linear_one,
                        {groups, p.tokens, 1}, kUnitThreads, unit_one_bytes(p.splits));
  for (const WaitingProduct& product : products) bind_weight(plan, product.weight);
  for (size_t i = products.size(); i < kUnitMatricesMax; ++i) bind_weight(plan, {});
  const WaitingChain& chain = waiting.chain;
  if (normed) {
    plan.set_params(UnitNormedParams{p, chain.adds, chain.norm.eps});
    plan.bind(range_of(chain.base, Access::kRead));
    plan.bind(range_of(chain.addends[0], Access::kRead));
    plan.bind(range_of(chain.norm.weight, Access::kRead));
  } else {
    plan.set_params(p);
    plan.bind(range_of(x, Access::kRead));
  }
  for (const WaitingProduct& product : products) bind_output(plan, product.out);
  for (size_t i = products.size(); i < kUnitMatricesMax; ++i) plan.bind({});
  if (normed) {
    bind_output(plan, chain.sums[1]);
    bind_output(plan, chain.norm.out);
  }
  record(plan);
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

void GpuEncoder::record_unit_product(const Tensor& out, const Tensor& x, const Weight& weight) {
  const uint32_t n = rows_of(x);
  const auto cols = static_cast<uint64_t>(weight.cols);
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
  p.matrices[0] = unit_matrix(weight);
  p.out_strides[0] = row_stride(out);
  p.count = 1;
  p.cols = static_cast<u32>(cols);
  p.tokens = n;
  Plan plan =
      make_plan(KernelId::unit_linear,
                {groups_for(p.matrices[0].rows, 8 * kUnitRows), groups_for(n, 2 * kUnitTokens), 1},
                kUnitThreads, unit_many_bytes(2 * kUnitTokens));
  plan.set_params(p);
  bind_weight(plan, weight);
  plan.bind(split_);
  plan.bind(split_sums_);
  bind_output(plan, out);
  record(plan);
  split_x_ = x;
  if (have_overlap(x, out)) split_x_ = {};
}

}  // namespace moeflux::gpu
