// The gated delta rule as plans. That of one token may go on through the norm of its heads and
// their gate.
#include <cmath>

#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

float query_factor(int64_t key_dim) { return 1.0f / std::sqrt(static_cast<float>(key_dim)); }

DeltaParams delta_params(const DeltaOp& delta) {
  const GatedDeltaOptions& o = delta.options;
  DeltaParams p{};
  p.qkv_stride = row_stride(delta.qkv);
  p.a_stride = row_stride(delta.a);
  p.b_stride = row_stride(delta.b);
  p.out = heads_layout(delta.out);
  p.tokens = rows_of(delta.qkv);
  p.key_heads = static_cast<u32>(o.key_heads);
  p.heads_together = static_cast<u32>(o.heads_together());
  p.key_dim = static_cast<u32>(o.key_dim);
  p.value_dim = static_cast<u32>(o.value_dim);
  p.wide = is_wide(delta.qkv) && p.key_dim % 4 == 0 && p.value_dim % 4 == 0 ? 1 : 0;
  p.query_factor = query_factor(o.key_dim);
  return p;
}

void bind_inputs(Plan& plan, const DeltaOp& delta) {
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

}  // namespace

Plan plan_delta(const DeltaOp& delta, const Platform& platform) {
  DeltaParams p = delta_params(delta);
  p.block_tokens = kDeltaStagers * kDeltaStageUnits / key_units(p);
  if (block_bytes(p) > platform.shared_bytes_max()) p.block_tokens = kDeltaBlockMin;
  const KernelId kernel =
      key_units(p) == 4 ? KernelId::gated_delta_heads : KernelId::gated_delta_heads_wide;
  const auto value_heads = static_cast<u32>(delta.options.value_heads);
  Plan plan =
      make_plan(kernel, {groups_for(p.value_dim, kDeltaColumns), value_heads, 1}, kDeltaThreads);
  plan.shared_bytes = block_bytes(p);
  plan.set_params(p);
  bind_inputs(plan, delta);
  plan.bind(range_of(delta.state, Access::kReadWrite));
  bind_output(plan, delta.out);
  return plan;
}

Plan plan_delta_one(const Recorder& recorder, const Delta& waiting, const Tensor& gate) {
  const DeltaOp& delta = waiting.op;
  const NormOp& norm = waiting.norm;
  DeltaOneParams p{};
  if (!gate.is_null()) p.gate_head_stride = heads_layout(gate).head_stride;
  p.out_head_stride = heads_layout(delta.out).head_stride;
  const GatedDeltaOptions& o = delta.options;
  p.key_heads = static_cast<u32>(o.key_heads);
  p.key_head_step = static_cast<u32>(o.tiled_value_heads ? 1 : o.heads_per_key());
  p.value_head_step = static_cast<u32>(o.tiled_value_heads ? o.key_heads : 1);
  p.query_factor = query_factor(kDeltaOneDim);
  p.has_norm = norm.out.is_null() ? 0 : 1;
  p.has_gate = gate.is_null() ? 0 : 1;
  p.epsilon = norm.eps;
  p.early = recorder.has_just_written(delta.state) ? 0 : 1;
  Plan plan = make_plan(KernelId::gated_delta_t1_d128,
                        {static_cast<u32>(o.heads_per_key()), p.key_heads, 1}, kDeltaOneThreads,
                        kDeltaOneWords * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  bind_inputs(plan, delta);
  plan.bind(range_of(norm.weight, Access::kRead));
  plan.bind(range_of(gate, Access::kRead));
  plan.bind(range_of(delta.state, Access::kReadWrite));
  bind_output(plan, delta.out);
  return plan;
}

}  // namespace moeflux::gpu
