// embed, linear and the products per head as plans.
#include <algorithm>
#include <optional>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kSimds = kThreads / kSimdLanes;
// Up to so many rows times one token are shared out so that all cores have some: a router of 256
// rows took 19 us on an H200 in groups of four that stage their token.
constexpr uint32_t kFewRowsMax = 1024;

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
  const uint32_t rows = kSimds * (tile == 1 ? kRowsOfOneToken : kRowsOfTile);
  Plan plan = make_plan(matrix_kernel(KernelId::linear_f32_t1, weight.format, tile),
                        {groups_for(p.rows_per_head, rows), groups_for(p.tokens, tile), p.heads},
                        kThreads, p.stage_cols * tile * static_cast<uint32_t>(sizeof(float)));
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
// way; nothing if a core has too little memory for a row and the token.
std::optional<Plan> few_rows_plan(const LinearParams& product, const Weight& weight,
                                  const Tensor& x, const WaitingChain* made,
                                  const Platform& platform) {
  if (product.weight.rows > kFewRowsMax || weight.format.kind != QuantKind::kPlain ||
      product.weight.wide == 0 || !is_wide(x) || product.weight.cols % 8 != 0 ||
      product.weight.cols > kFewColsMax) {
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
  if (bytes(p.group_rows) > platform.shared_bytes_max()) return std::nullopt;
  if (made) {
    p.adds = made->adds;
    p.epsilon = made->norm.eps;
  }
  Plan plan = make_plan(few_kernel(weight.format.dtype, made != nullptr),
                        {groups_for(p.weight.rows, p.group_rows), 1, 1}, kNormThreads);
  plan.shared_bytes = static_cast<uint32_t>(bytes(p.group_rows));
  plan.set_params(p);
  return plan;
}

}  // namespace

void GpuEncoder::embed(Tensor out, const Weight& table, Tensor token_ids) {
  if (!supports("embed", table)) return;
  MF_CHECK(rows_of(out) == token_ids.num_elements() && out.shape.back() == table.cols &&
           token_ids.dtype == DType::kI32);
  EmbedParams p{};
  p.table = matrix_layout(table);
  p.out = rows_layout(out);
  p.tokens = rows_of(out);
  Plan plan =
      make_plan(KernelId::embed_rows, {groups_for(p.table.cols, kThreads), p.tokens, 1}, kThreads);
  plan.set_params(p);
  bind_weight(plan, table);
  plan.bind(range_of(token_ids, Access::kRead));
  bind_output(plan, out);
  record(plan);
}

void GpuEncoder::record_product(Plan& plan, const Tensor& out, const Tensor& x,
                                const Weight& weight) {
  bind_weight(plan, weight);
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  record(plan);
}

bool GpuEncoder::record_few_rows(const LinearParams& p, const Tensor& out, const Tensor& x,
                                 const Weight& weight) {
  const WaitingChain& chain = waiting_.chain;
  const bool made = waiting_.products.empty() && can_norm(chain, x) && can_sum(chain) &&
                    is_apart(waiting_, out) && !have_overlap(x, out);
  std::optional<Plan> plan = few_rows_plan(p, weight, x, made ? &chain : nullptr, platform_);
  if (!plan) return false;
  plan->bind(range_of(weight.data, Access::kRead));
  if (made) {
    plan->bind(range_of(chain.base, Access::kRead));
    plan->bind(range_of(chain.addends[0], Access::kRead));
    plan->bind(range_of(chain.norm.weight, Access::kRead));
    bind_output(*plan, out);
    bind_output(*plan, chain.sums[1]);
    bind_output(*plan, chain.norm.out);
    waiting_.clear();
  } else {
    plan->bind(range_of(x, Access::kRead));
    bind_output(*plan, out);
  }
  record(*plan);
  return true;
}

void GpuEncoder::linear(Tensor out, Tensor x, const Weight& weight) {
  if (!supports("linear", weight)) return;
  const int64_t n = rows_of(x);
  MF_CHECK(rows_of(out) == n && out.shape.back() == weight.rows && x.shape.back() == weight.cols);
  MF_CHECK(out.is_contiguous() && x.is_contiguous());
  if (uses_mma(weight)) return add_mma_product(out, x, weight);
  const HeadRows rows{0, 0, weight.rows};
  const LinearParams p =
      head_params(out.reshape({n, 1, weight.rows}), x.reshape({n, 1, weight.cols}), weight, rows);
  if (n == 1 && record_few_rows(p, out, x, weight)) return;
  Plan plan = product_plan(p, weight);
  record_product(plan, out, x, weight);
}

void GpuEncoder::head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) {
  if (!supports("head_linear", weight)) return;
  MF_CHECK(out.shape.back() == rows.rows_per_head && x.shape.back() == weight.cols &&
           out.dim(0) == x.dim(0) && out.dim(1) == x.dim(1));
  Plan plan = product_plan(head_params(out, x, weight, rows), weight);
  record_product(plan, out, x, weight);
}

void GpuEncoder::head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                                        const HeadRows& rows) {
  if (!supports("head_linear_transposed", weight)) return;
  MF_CHECK(x.shape.back() == rows.rows_per_head && out.shape.back() == weight.cols &&
           out.dim(0) == x.dim(0) && out.dim(1) == x.dim(1));
  const LinearParams p = head_params(out, x, weight, rows);
  const uint32_t tile = p.tokens <= 4 ? 4 : 16;
  Plan plan = make_plan(
      tile == 4 ? KernelId::head_linear_transposed_t4 : KernelId::head_linear_transposed_t16,
      {groups_for(p.weight.cols, kThreads), groups_for(p.tokens, tile), p.heads}, kThreads,
      kHeadStageRows * tile * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  record_product(plan, out, x, weight);
}

}  // namespace moeflux::gpu
