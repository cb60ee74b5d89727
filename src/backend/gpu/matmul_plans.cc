// embed, linear and the products per head as plans.
#include <algorithm>
#include <optional>

#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kMatmulThreads = 128;
// Rows of one token are shared by larger groups where there are so many: each group brings the
// token to its memory, which for four rows of 4 bits is twice what these take.
constexpr uint32_t kManyHeadRows = 512;
// Up to so many rows times one token are shared out so that all cores have some: a router of 256
// rows took 19 us on an H200 in groups of four that stage their token.
constexpr uint32_t kFewWeightRowsMax = 1024;

LinearParams head_params(const Tensor& out, const Tensor& x, const Weight& weight,
                         const HeadRows& rows) {
  LinearParams p{};
  p.weight = matrix_layout(weight);
  p.x = heads_layout(x);
  p.out = heads_layout(out);
  p.wide = is_wide(x) ? 1 : 0;
  p.tokens = static_cast<u32>(x.dim(0));
  p.heads = static_cast<u32>(x.dim(1));
  p.head_stride = static_cast<u32>(rows.head_stride);
  p.row_begin = static_cast<u32>(rows.row_begin);
  p.rows_per_head = static_cast<u32>(rows.rows_per_head);
  return p;
}

/// The plan of linear and head_linear, without bindings.
Plan product_plan(LinearParams p, const Weight& weight) {
  const uint32_t tile = tile_tokens(p.tokens);
  p.stage_cols = stage_cols(weight.cols, tile);
  const uint32_t threads =
      tile == 1 && p.rows_per_head >= kManyHeadRows ? uint32_t{kLinearThreadsMax} : kMatmulThreads;
  const uint32_t rows = threads / kSimdLanes * (tile == 1 ? kRowsOfOneToken : kRowsOfTile);
  Plan plan = make_plan(matrix_kernel(KernelId::linear_f32_t1, weight.format, tile),
                        {groups_for(p.rows_per_head, rows), groups_for(p.tokens, tile), p.heads},
                        threads, p.stage_cols * tile * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  return plan;
}

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
std::optional<Plan> few_rows_plan(const LinearParams& product, const Weight& weight,
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
  Plan plan = make_plan(few_kernel(weight.format.dtype, made != nullptr),
                        {groups_for(p.weight.rows, p.group_rows), 1, 1}, kNormThreads);
  plan.shared_bytes = static_cast<uint32_t>(shared_bytes);
  plan.set_params(p);
  return plan;
}

// Weight, x, output.
Plan bound(Plan plan, const Tensor& out, const Tensor& x, const Weight& weight) {
  bind_weight(plan, weight);
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  return plan;
}

LinearParams linear_params(const Tensor& out, const Tensor& x, const Weight& weight) {
  const int64_t n = rows_of(x);
  return head_params(out.reshape({n, 1, weight.rows}), x.reshape({n, 1, weight.cols}), weight,
                     {0, 0, weight.rows});
}

}  // namespace

Plan plan_embed(const Tensor& out, const Weight& table, const Tensor& token_ids) {
  EmbedParams p{};
  p.table = matrix_layout(table);
  p.out = rows_layout(out);
  p.tokens = rows_of(out);
  Plan plan = make_plan(KernelId::embed_rows,
                        {groups_for(p.table.cols, kMatmulThreads), p.tokens, 1}, kMatmulThreads);
  plan.set_params(p);
  return bound(plan, out, token_ids, table);
}

Plan plan_linear(const Tensor& out, const Tensor& x, const Weight& weight) {
  return bound(product_plan(linear_params(out, x, weight), weight), out, x, weight);
}

std::optional<Plan> plan_few_rows(const FewRowsOp& op, const Weight& weight, const Chain* made,
                                  const Platform& platform) {
  std::optional<Plan> plan =
      few_rows_plan(linear_params(op.out, op.x, weight), weight, op.x, made, platform);
  if (!plan) return plan;
  plan->bind(range_of(weight.parts.codes, Access::kRead));
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
  return plan;
}

Plan plan_head_linear(const Tensor& out, const Tensor& x, const Weight& weight,
                      const HeadRows& rows) {
  return bound(product_plan(head_params(out, x, weight, rows), weight), out, x, weight);
}

Plan plan_head_linear_transposed(const Tensor& out, const Tensor& x, const Weight& weight,
                                 const HeadRows& rows) {
  const LinearParams p = head_params(out, x, weight, rows);
  const uint32_t tile = p.tokens <= 4 ? 4 : 16;
  Plan plan = make_plan(
      tile == 4 ? KernelId::head_linear_transposed_t4 : KernelId::head_linear_transposed_t16,
      {groups_for(p.weight.cols, kMatmulThreads), groups_for(p.tokens, tile), p.heads},
      kMatmulThreads, kHeadStageRows * tile * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  return bound(plan, out, x, weight);
}

}  // namespace moeflux::gpu
