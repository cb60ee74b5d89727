// embed, linear and the products per head as plans.
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kSimds = kThreads / kSimdLanes;
// Up to so many rows times one token have a SIMD group each, two a group, so that all cores have
// some: a router of 256 rows took 19 us on an H200 in groups of four that stage their token.
constexpr uint32_t kFewRowsMax = 1024;
constexpr uint32_t kRowThreads = 64;

void bind_weight(Plan& plan, const Weight& weight) {
  plan.bind(range_of(weight.data, Access::kRead));
  plan.bind(range_of(weight.scales, Access::kRead));
  plan.bind(range_of(weight.biases, Access::kRead));
}

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

// Whether rows of plain numbers can be read eight columns at a time, as they are of one token.
bool has_plain_packs(const LinearParams& p, const Weight& weight, const Tensor& x) {
  return weight.format.kind == QuantKind::kPlain && p.weight.wide != 0 && is_wide(x) &&
         p.weight.cols % 8 == 0;
}

KernelId row_kernel(DType dtype) {
  return dtype == DType::kF32   ? KernelId::linear_one_f32
         : dtype == DType::kF16 ? KernelId::linear_one_f16
                                : KernelId::linear_one_bf16;
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

void GpuEncoder::linear(Tensor out, Tensor x, const Weight& weight) {
  if (!supports("linear", weight)) return;
  const int64_t n = rows_of(x);
  MF_CHECK(rows_of(out) == n && out.shape.back() == weight.rows && x.shape.back() == weight.cols);
  MF_CHECK(out.is_contiguous() && x.is_contiguous());
  if (use_units(weight)) return add_unit_product(out, x, weight);
  const HeadRows rows{0, 0, weight.rows};
  const LinearParams p =
      head_params(out.reshape({n, 1, weight.rows}), x.reshape({n, 1, weight.cols}), weight, rows);
  if (n == 1 && p.weight.rows <= kFewRowsMax && has_plain_packs(p, weight, x)) {
    Plan plan = make_plan(row_kernel(weight.format.dtype),
                          {groups_for(p.weight.rows, kRowThreads / kSimdLanes), 1, 1}, kRowThreads);
    plan.set_params(p);
    return record_product(plan, out, x, weight);
  }
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
