// Element-wise ops, norms and rope as plans.
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kThreads = 256;
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
  return make_plan(kernel, {groups_for(static_cast<uint64_t>(out.num_elements()), kThreads), 1, 1},
                   kThreads);
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
  return make_plan(kernel, {groups_for(wide != 0 ? elements / 4 : elements, kThreads), 1, 1},
                   kThreads);
}

u32 activation_code(Activation activation) { return static_cast<u32>(activation); }
static_assert(static_cast<int>(Activation::kSilu) == 0 &&
              static_cast<int>(Activation::kSigmoid) == 1 &&
              static_cast<int>(Activation::kGeluTanh) == 2);

}  // namespace

void GpuEncoder::copy(Tensor out, Tensor x) {
  MF_CHECK(out.shape == x.shape);
  Plan plan = element_plan(KernelId::copy_rows, out);
  plan.set_params(rows_params(out, x, {}));
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  record(plan);
}

void GpuEncoder::add(Tensor out, Tensor a, Tensor b) {
  MF_CHECK(out.shape == a.shape && out.shape == b.shape);
  if (!join_chain(out, a, b)) record_add(out, a, b);
}

void GpuEncoder::record_add(const Tensor& out, const Tensor& a, const Tensor& b) {
  Plan plan = element_plan(KernelId::add_rows, out);
  plan.set_params(rows_params(out, a, b));
  plan.bind(range_of(a, Access::kRead));
  plan.bind(range_of(b, Access::kRead));
  bind_output(plan, out);
  record(plan);
}

void GpuEncoder::scale(Tensor out, Tensor x, float factor) {
  MF_CHECK(out.shape == x.shape);
  Plan plan = element_plan(KernelId::scale_rows, out);
  RowsParams p = rows_params(out, x, {});
  p.factor = factor;
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  bind_output(plan, out);
  record(plan);
}

void GpuEncoder::soft_cap(Tensor x, float cap) {
  Plan plan = element_plan(KernelId::soft_cap_rows, x);
  RowsParams p = rows_params(x, {}, {});
  p.factor = cap;
  plan.set_params(p);
  plan.bind(range_of(x, Access::kReadWrite));
  record(plan);
}

void GpuEncoder::add_bias(Tensor x, Tensor bias) {
  MF_CHECK(bias.num_elements() == x.shape.back() && bias.dtype == DType::kF32);
  Plan plan = element_plan(KernelId::add_bias_rows, x);
  plan.set_params(rows_params(x, {}, {}));
  plan.bind(range_of(bias, Access::kRead));
  plan.bind(range_of(x, Access::kReadWrite));
  record(plan);
}

void GpuEncoder::mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) {
  MF_CHECK(out.shape == x.shape && rows_of(gate) == rows_of(x));
  MF_CHECK(gate.shape.back() == x.shape.back() || gate.shape.back() == 1);
  if (!join_gate(out, x, gate, activation)) record_mul(out, x, gate, activation);
}

void GpuEncoder::record_mul(const Tensor& out, const Tensor& x, const Tensor& gate,
                            Activation activation) {
  RowsParams p = rows_params(out, x, gate);
  p.wide = has_wide_rows(out, x, gate) ? 1 : 0;
  Plan plan = columns_plan(KernelId::mul_activated_rows, out, p.wide);
  p.activation = activation_code(activation);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  plan.bind(range_of(gate, Access::kRead));
  bind_output(plan, out);
  record(plan);
}

void GpuEncoder::glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) {
  MF_CHECK(out.shape == gate.shape && out.shape == up.shape);
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
  record(plan);
}

void GpuEncoder::rms_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  MF_CHECK(out.shape == x.shape);
  MF_CHECK(weight.is_null() ||
           (weight.num_elements() == x.shape.back() && weight.dtype == DType::kF32));
  const WaitingNorm norm{out, x, weight, eps};
  if (!join_norm(norm)) record_norm(norm, {}, {});
}

// With a gate, rows are narrow.
void GpuEncoder::record_norm(const WaitingNorm& norm, const Tensor& gate, Activation activation) {
  RowsParams p = rows_params(norm.out, norm.x, gate);
  p.factor = norm.eps;
  p.has_weight = norm.weight.is_null() ? 0 : 1;
  p.has_gate = gate.is_null() ? 0 : 1;
  p.activation = activation_code(activation);
  p.wide = p.cols % 4 == 0 && is_wide(norm.x) && is_wide(norm.out) && is_wide(norm.weight) &&
                   is_wide(gate)
               ? 1
               : 0;
  const bool narrow = is_narrow(norm.x);
  p.simd_rows = p.rows >= kManyRows && shares_inner(p) ? u32{kNarrowRows} : 1;
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
  record(plan);
}

void GpuEncoder::rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
                      const RopeOptions& options) {
  MF_CHECK(x.shape.rank() == 3 && options.rotary_dim <= x.dim(2) &&
           inverse_frequencies.num_elements() == options.rotary_dim / 2 &&
           positions.num_elements() == x.dim(0) && positions.dtype == DType::kI32);
  if (options.rotary_dim < 2) return;
  if (!join_rope(x, positions, inverse_frequencies, options)) {
    record_rope(x, positions, inverse_frequencies, options);
  }
}

void GpuEncoder::record_rope(const Tensor& x, const Tensor& positions,
                             const Tensor& inverse_frequencies, const RopeOptions& options) {
  RopeParams p{};
  const HeadsLayout layout = heads_layout(x);
  p.token_stride = layout.token_stride;
  p.head_stride = layout.head_stride;
  p.tokens = static_cast<u32>(x.dim(0));
  p.heads = static_cast<u32>(x.dim(1));
  p.half = static_cast<u32>(options.rotary_dim / 2);
  p.interleaved = options.interleaved ? 1 : 0;
  p.factor = options.attention_factor;
  const uint64_t pairs = uint64_t{p.tokens} * p.heads * p.half;
  Plan plan = make_plan(KernelId::rope_heads, {groups_for(pairs, kThreads), 1, 1}, kThreads);
  plan.set_params(p);
  plan.bind(range_of(positions, Access::kRead));
  plan.bind(range_of(inverse_frequencies, Access::kRead));
  plan.bind(range_of(x, Access::kReadWrite));
  record(plan);
}

}  // namespace moeflux::gpu
