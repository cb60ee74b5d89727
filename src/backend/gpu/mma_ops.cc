// Products of quantised matrices with many tokens on matrix units as plans: activations are split
// once for all that follow.
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {

// Long rows of wide codes need more shared memory than some GPUs have.
bool GpuEncoder::uses_mma(const Weight& weight) const {
  if (!platform_.has_matrix_units() || !fits_mma(weight)) return false;
  const uint32_t most = platform_.shared_bytes_max();
  const auto bits = static_cast<uint32_t>(weight.format.bits);
  return std::max(mma_one_bytes_min(bits, weight.cols), mma_many_bytes(kMmaStages)) <= most;
}

void GpuEncoder::forget_splits() {
  for (SplitRows& split : splits_) split.x = {};
}

const SplitRows* GpuEncoder::split_rows(const Tensor& x) {
  flush_waiting();  // it may write to x
  for (const SplitRows& split : splits_) {
    if (!split.x.is_null() && are_same(split.x, x)) return &split;
  }
  SplitRows& split = splits_[next_split_];
  next_split_ = (next_split_ + 1) % splits_.size();
  const uint64_t rows = rows_of(x);
  const auto cols = static_cast<uint64_t>(x.shape.back());
  const size_t begin = split_sums_begin(rows, cols);
  const size_t bytes = split_rows_bytes(rows, cols);
  const Result<Binding> space = split.space.take(bytes);
  if (!space.ok()) {
    fail(space.error());
    return nullptr;
  }
  split.integers = part_of(*space, 0, begin, Access::kOverwrite);
  split.sums = part_of(*space, begin, bytes - begin, Access::kOverwrite);
  split.x = x;
  record_split(split);
  split.integers.access = split.sums.access = Access::kRead;
  return &split;
}

void GpuEncoder::record_split(const SplitRows& split) {
  QuantizeRowsParams p{};
  p.x_stride = row_stride(split.x);
  p.cols = static_cast<u32>(split.x.shape.back());
  p.wide = is_wide(split.x) ? 1 : 0;
  Plan plan = make_plan(KernelId::mma_quantize_rows,
                        {groups_for(p.cols / 8, kMmaThreads), rows_of(split.x), 1}, kMmaThreads);
  plan.set_params(p);
  plan.bind(range_of(split.x, Access::kRead));
  plan.bind(split.integers);
  plan.bind(split.sums);
  record(plan);
}

void GpuEncoder::record_products_of_many(const Products& products) {
  const Tensor& x = products.front().x;
  const uint32_t n = rows_of(x);
  const SplitRows* const split = split_rows(x);
  if (split == nullptr) return;
  MmaLinearParams p{};
  p.cols = static_cast<u32>(x.shape.back());
  p.tokens = n;
  p.stages = kMmaStages;
  const uint32_t groups = list_matrices(p, products, kMmaGroupRows);
  Plan plan =
      make_mma_many_plan(KernelId::mma_linear, {groups, groups_for(n, kMmaTokens), 1}, p.stages);
  plan.set_params(p);
  for (const WaitingProduct& product : products) bind_weight(plan, product.weight);
  for (size_t i = products.size(); i < kMmaMatricesMax; ++i) bind_weight(plan, {});
  plan.bind(split->integers);
  plan.bind(split->sums);
  for (const WaitingProduct& product : products) bind_output(plan, product.out);
  for (size_t i = products.size(); i < kMmaMatricesMax; ++i) plan.bind({});
  record(plan);
}

}  // namespace moeflux::gpu
