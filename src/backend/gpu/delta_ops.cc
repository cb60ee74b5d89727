// The gated delta rule as plans. That of one token waits for the norm of its heads and their gate,
// which then need no launch.
#include <cmath>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

constexpr int64_t kDeltaKeyDimMax = 256;

float query_factor(int64_t key_dim) { return 1.0f / std::sqrt(static_cast<float>(key_dim)); }

DeltaParams delta_params(const WaitingDelta& delta) {
  const GatedDeltaOptions& o = delta.options;
  DeltaParams p{};
  p.qkv_stride = row_stride(delta.qkv);
  p.a_stride = row_stride(delta.a);
  p.b_stride = row_stride(delta.b);
  p.out = heads_layout(delta.out);
  p.tokens = rows_of(delta.qkv);
  p.key_heads = static_cast<u32>(o.key_heads);
  p.value_heads = static_cast<u32>(o.value_heads);
  p.key_dim = static_cast<u32>(o.key_dim);
  p.value_dim = static_cast<u32>(o.value_dim);
  p.wide = is_wide(delta.qkv) && p.key_dim % 4 == 0 && p.value_dim % 4 == 0 ? 1 : 0;
  p.query_factor = query_factor(o.key_dim);
  return p;
}

// True when gated_delta_t1_d128 computes it.
bool is_one(const WaitingDelta& delta) {
  const GatedDeltaOptions& o = delta.options;
  return rows_of(delta.qkv) == 1 && o.key_dim == int64_t{kDeltaOneDim} &&
         o.value_dim == int64_t{kDeltaOneDim} && is_wide(delta.qkv) && is_wide(delta.state) &&
         is_wide(delta.out);
}

void bind_inputs(Plan& plan, const WaitingDelta& delta) {
  for (const Tensor& tensor : {delta.qkv, delta.a, delta.b, delta.a_log, delta.dt_bias}) {
    plan.bind(range_of(tensor, Access::kRead));
  }
}

// Units of 32 rows of keys that a kernel is made for.
uint32_t key_units(const DeltaParams& p) { return p.key_dim <= 128 ? 4 : 8; }

// Two blocks of tokens, and a token after each.
uint32_t block_bytes(const DeltaParams& p) {
  return 2 * (p.block_tokens + 1) * (2 * key_units(p) * kSimdLanes + kDeltaTokenWords) *
         static_cast<uint32_t>(sizeof(float));
}

Plan plan_many(const WaitingDelta& delta, const Platform& platform) {
  DeltaParams p = delta_params(delta);
  p.block_tokens = kDeltaStagers * kDeltaStageUnits / key_units(p);
  if (block_bytes(p) > platform.shared_bytes_max()) p.block_tokens = kDeltaBlockMin;
  const KernelId kernel =
      key_units(p) == 4 ? KernelId::gated_delta_heads : KernelId::gated_delta_heads_wide;
  Plan plan =
      make_plan(kernel, {groups_for(p.value_dim, kDeltaColumns), p.value_heads, 1}, kDeltaThreads);
  plan.shared_bytes = block_bytes(p);
  plan.set_params(p);
  bind_inputs(plan, delta);
  plan.bind(range_of(delta.state, Access::kReadWrite));
  bind_output(plan, delta.out);
  return plan;
}

}  // namespace

void GpuEncoder::gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log,
                             Tensor dt_bias, Tensor state, const GatedDeltaOptions& o) {
  if (!status_.ok()) return;
  MF_CHECK(qkv.shape.back() == 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim &&
           o.value_heads % o.key_heads == 0 && state.is_contiguous());
  if (o.key_dim > kDeltaKeyDimMax) {
    fail(make_error(ErrorCode::kUnsupported, "gated_delta: keys of {} per head, at most {}",
                    o.key_dim, kDeltaKeyDimMax));
    return;
  }
  const WaitingDelta delta{out, qkv, a, b, a_log, dt_bias, state, o, {}};
  if (!is_one(delta)) return record(plan_many(delta, platform_));
  flush_waiting();
  waiting_.delta = delta;
}

bool GpuEncoder::join_delta(const WaitingNorm& norm) {
  WaitingDelta& delta = waiting_.delta;
  if (!waiting_.has_delta() || !delta.norm.out.is_null() || !are_same(delta.out, norm.x) ||
      !are_same(norm.x, norm.out) || norm.weight.is_null() || !is_wide(norm.weight)) {
    return false;
  }
  delta.norm = norm;
  return true;
}

void GpuEncoder::record_delta(const WaitingDelta& delta, const Tensor& gate) {
  DeltaOneParams p{};
  if (!gate.is_null()) p.gate_head_stride = heads_layout(gate).head_stride;
  p.out_head_stride = heads_layout(delta.out).head_stride;
  p.key_heads = static_cast<u32>(delta.options.key_heads);
  p.heads_per_key = static_cast<u32>(delta.options.value_heads / delta.options.key_heads);
  p.query_factor = query_factor(kDeltaOneDim);
  p.has_norm = delta.norm.out.is_null() ? 0 : 1;
  p.has_gate = gate.is_null() ? 0 : 1;
  p.epsilon = delta.norm.eps;
  p.early = has_just_written(delta.state) ? 0 : 1;
  Plan plan = make_plan(KernelId::gated_delta_t1_d128, {p.heads_per_key, p.key_heads, 1},
                        kDeltaOneThreads, kDeltaOneWords * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  bind_inputs(plan, delta);
  plan.bind(range_of(delta.norm.weight, Access::kRead));
  plan.bind(range_of(gate, Access::kRead));
  plan.bind(range_of(delta.state, Access::kReadWrite));
  bind_output(plan, delta.out);
  record(plan);
}

}  // namespace moeflux::gpu
