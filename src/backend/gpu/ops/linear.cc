// Products on matrix units wait for each other; others have a launch of their own.
#include "backend/ops/linear.h"

#include <algorithm>
#include <optional>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/matmul_plans.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {
namespace {

// Up to so many rows times one token are shared out so that all cores have some: a router of 256
// rows took 19 us on an H200 in groups of four that stage their token.
constexpr uint32_t kFewWeightRowsMax = 1024;

KernelId few_kernel(DType dtype, bool normed) {
  switch (dtype) {
    case DType::kF32:
      return normed ? KernelId::linear_few_rows_normed_f32_t1 : KernelId::linear_few_rows_f32_t1;
    case DType::kF16:
      return normed ? KernelId::linear_few_rows_normed_f16_t1 : KernelId::linear_few_rows_f16_t1;
    default:
      return normed ? KernelId::linear_few_rows_normed_bf16_t1 : KernelId::linear_few_rows_bf16_t1;
  }
}

// Rows of plain numbers, eight columns at a time, times one token that is there or a norm on the
// way; nothing if a core has too little memory for the token.
std::optional<FewRows> few_rows_plan(const LinearParams& product, const Weight& weight,
                                     const Tensor& x, const Chain* made, const Platform& platform) {
  if (product.weight.rows > kFewWeightRowsMax || !weight.format.is_plain() ||
      product.weight.wide == 0 || !is_wide(x) || product.weight.cols % 8 != 0) {
    return std::nullopt;
  }
  FewRowsParams p{};
  p.weight = product.weight;
  const uint64_t row_bytes = uint64_t{p.weight.cols} * (dtype_bits(weight.format.dtype) / 8);
  const auto bytes = [&](uint32_t rows) {
    const uint64_t floats = kNormLongSimds + groups_for(p.weight.cols, 256) * uint64_t{256};
    return floats * sizeof(float) + rows * row_bytes;
  };
  p.group_rows = std::clamp(groups_for(p.weight.rows, platform.cores()), 1u,
                            uint32_t{kNormThreads} / kSimdLanes);
  while (p.group_rows > 1 && bytes(p.group_rows) > platform.shared_bytes_max()) --p.group_rows;
  p.staged = bytes(p.group_rows) <= platform.shared_bytes_max() ? 1 : 0;
  const uint64_t shared_bytes = bytes(p.staged != 0 ? p.group_rows : 0);
  if (shared_bytes > platform.shared_bytes_max()) return std::nullopt;
  if (made) {
    p.adds = made->adds;
    p.weights = made->norm.weight.is_null() ? 0 : 1;
    p.epsilon = made->norm.eps;
  }
  FewRows few{make_plan(few_kernel(weight.format.dtype, made != nullptr),
                        {groups_for(p.weight.rows, p.group_rows), 1, 1}, kNormThreads),
              p,
              {}};
  few.plan.shared_bytes = static_cast<uint32_t>(shared_bytes);
  few.plan.set_params(p);
  return few;
}

LinearParams linear_params(const ops::Linear& op) {
  const Weight& weight = op.weight;
  const int64_t n = rows_of(op.x);
  return head_params(op.out.reshape({n, 1, weight.rows}), op.x.reshape({n, 1, weight.cols}), weight,
                     {0, 0, weight.rows});
}

Plan plan_linear(const ops::Linear& op, const Platform& platform) {
  return bound(product_plan(linear_params(op), op.weight, platform), op.out, op.x, op.weight);
}

/// One token times few rows of plain numbers, made from `made` on the way unless that is null;
/// nothing if rows are too many or too long for it.
std::optional<FewRows> plan_few_rows(const ops::Linear& op, const Chain* made,
                                     const Platform& platform) {
  std::optional<FewRows> few = few_rows_plan(linear_params(op), op.weight, op.x, made, platform);
  if (!few) return few;
  few->out = op.out;
  Plan* const plan = &few->plan;
  plan->bind(range_of(op.weight.parts.codes, Access::kRead));
  if (made != nullptr) {
    plan->bind(range_of(made->base, Access::kRead));
    plan->bind(range_of(made->addends[0], Access::kRead));
    plan->bind(range_of(made->norm.weight, Access::kRead));
    bind_output(*plan, op.out);
    bind_output(*plan, made->sums[1]);
    bind_output(*plan, made->norm.out);
  } else {
    plan->bind(range_of(op.x, Access::kRead));
    bind_output(*plan, op.out);
  }
  plan->bind({});
  return few;
}

}  // namespace

void run(GpuContext& gpu, const ops::Linear& op) {
  const Platform& platform = gpu.platform();
  if (uses_mma(platform, op.weight)) {
    if (rows_of(op.x) > 0) (void)gpu.fuse(op);
    return;
  }
  if (rows_of(op.x) != 1) return gpu.record(plan_linear(op, platform));
  Waiting& waiting = gpu.waiting();
  const bool makes =
      action_of(waiting, FewRowsOp{op}, platform.has_matrix_units()) == Action::kFinish;
  const std::optional<FewRows> few = plan_few_rows(op, makes ? &waiting.chain : nullptr, platform);
  if (!few) return gpu.record(plan_linear(op, platform));
  makes ? waiting.clear() : gpu.flush();
  waiting.few_rows = few;
}

}  // namespace moeflux::gpu
