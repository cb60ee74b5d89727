// Element-wise operations, norms and rope as plans.
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kRowsThreads = 256;
constexpr uint32_t kNarrowThreads = 128;
constexpr uint32_t kManyRows = 1 << 13;  // fill any GPU with a SIMD group each

bool is_narrow(const Tensor& x) { return x.shape.back() <= int64_t{kNormNarrowCols}; }

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

// True when kernels may take four columns at once.
bool has_wide_rows(const Tensor& out, const Tensor& a, const Tensor& b) {
  return out.shape.back() % 4 == 0 && is_wide(out) && is_wide(a) &&
         (b.is_null() || b.shape.back() == 1 || is_wide(b));
}

// True when the rows of a SIMD group that begins with a multiple of kNarrowRows are a stride apart.
bool shares_inner(const RowsParams& p) {
  return p.out.extents[2] % kNarrowRows == 0 && p.a.extents[2] % kNarrowRows == 0 &&
         (p.has_gate == 0 || p.b.extents[2] % kNarrowRows == 0);
}

// Four columns a thread where `wide`.
Plan columns_plan(KernelId kernel, const Tensor& out, u32 wide) {
  const auto elements = static_cast<uint64_t>(out.num_elements());
  return make_plan(kernel, {groups_for(wide != 0 ? elements / 4 : elements, kRowsThreads), 1, 1},
                   kRowsThreads);
}

}  // namespace

Plan plan_copy(const Tensor& out, const Tensor& x) {
  Plan plan = element_plan(KernelId::copy_rows, out);
  plan.set_params(rows_params(out, x, {}));
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  return plan;
}

Plan plan_add(const AddOp& op) {
  Plan plan = element_plan(KernelId::add_rows, op.out);
  plan.set_params(rows_params(op.out, op.a, op.b));
  plan.bind(range_of(op.a, Access::kRead));
  plan.bind(range_of(op.b, Access::kRead));
  bind_output(plan, op.out);
  return plan;
}

Plan plan_scale(const Tensor& out, const Tensor& x, float factor) {
  Plan plan = element_plan(KernelId::scale_rows, out);
  RowsParams p = rows_params(out, x, {});
  p.factor = factor;
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  return plan;
}

Plan plan_soft_cap(const Tensor& x, float cap) {
  Plan plan = element_plan(KernelId::soft_cap_rows, x);
  RowsParams p = rows_params(x, {}, {});
  p.factor = cap;
  plan.set_params(p);
  plan.bind(range_of(x, Access::kReadWrite));
  return plan;
}

Plan plan_add_bias(const Tensor& x, const Tensor& bias) {
  Plan plan = element_plan(KernelId::add_bias_rows, x);
  plan.set_params(rows_params(x, {}, {}));
  plan.bind(range_of(bias, Access::kRead));
  plan.bind(range_of(x, Access::kReadWrite));
  return plan;
}

Plan plan_gate(const GateOp& op) {
  RowsParams p = rows_params(op.out, op.x, op.gate);
  p.wide = has_wide_rows(op.out, op.x, op.gate) ? 1 : 0;
  Plan plan = columns_plan(KernelId::mul_activated_rows, op.out, p.wide);
  p.activation = activation_code(op.activation);
  plan.set_params(p);
  plan.bind(range_of(op.x, Access::kRead));
  plan.bind(range_of(op.gate, Access::kRead));
  bind_output(plan, op.out);
  return plan;
}

Plan plan_glu(const Tensor& out, const Tensor& gate, const Tensor& up, const GluOptions& options) {
  RowsParams p = rows_params(out, gate, up);
  p.wide = has_wide_rows(out, gate, up) ? 1 : 0;
  Plan plan = columns_plan(KernelId::glu_rows, out, p.wide);
  p.activation = activation_code(options.activation);
  p.factor = options.alpha;
  p.limit = options.limit;
  p.up_offset = options.up_offset;
  plan.set_params(p);
  plan.bind(range_of(gate, Access::kRead));
  plan.bind(range_of(up, Access::kRead));
  bind_output(plan, out);
  return plan;
}

// With a gate, rows are narrow.
Plan plan_norm(const NormOp& norm, const Tensor& gate, Activation activation) {
  RowsParams p = rows_params(norm.out, norm.x, gate);
  p.factor = norm.eps;
  p.weights = norm.weight.is_null() ? 0 : rows_of(norm.weight);
  p.has_gate = gate.is_null() ? 0 : 1;
  p.activation = activation_code(activation);
  p.wide = p.cols % 4 == 0 && is_wide(norm.x) && is_wide(norm.out) && is_wide(norm.weight) &&
                   is_wide(gate)
               ? 1
               : 0;
  const bool narrow = is_narrow(norm.x);
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

Plan plan_layer_norm(const NormOp& norm) {
  RowsParams p = rows_params(norm.out, norm.x, {});
  p.factor = norm.eps;
  p.wide = p.cols % 4 == 0 && is_wide(norm.x) && is_wide(norm.out) && is_wide(norm.weight) ? 1 : 0;
  Plan plan = make_plan(KernelId::layer_norm_rows,
                        {groups_for(p.rows, kNarrowThreads / kSimdLanes), 1, 1}, kNarrowThreads);
  plan.set_params(p);
  plan.bind(range_of(norm.x, Access::kRead));
  plan.bind(range_of(norm.weight, Access::kRead));
  bind_output(plan, norm.out);
  return plan;
}

Plan plan_rope(const RopeOp& op) {
  RopeParams p{};
  const HeadsLayout layout = heads_layout(op.x);
  p.token_stride = layout.token_stride;
  p.head_stride = layout.head_stride;
  p.tokens = static_cast<u32>(op.x.dim(0));
  p.heads = static_cast<u32>(op.x.dim(1));
  p.half = static_cast<u32>(op.options.rotary_dim / 2);
  p.interleaved = op.options.interleaved ? 1 : 0;
  p.unit = static_cast<u32>(op.options.unit);
  p.factor = op.options.attention_factor;
  const uint64_t pairs = uint64_t{p.tokens} * p.heads * p.half;
  Plan plan =
      make_plan(KernelId::rope_heads, {groups_for(pairs, kRowsThreads), 1, 1}, kRowsThreads);
  plan.set_params(p);
  plan.bind(range_of(op.positions, Access::kRead));
  plan.bind(range_of(op.frequencies, Access::kRead));
  plan.bind(range_of(op.x, Access::kReadWrite));
  return plan;
}

}  // namespace moeflux::gpu
