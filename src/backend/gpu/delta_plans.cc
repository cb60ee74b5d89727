// The gated delta rule and the selective scan as plans. The delta rule of one token may go on
// through the norm of its heads and their gate.
#include <cmath>

#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

float query_factor(int64_t key_dim) { return 1.0f / std::sqrt(static_cast<float>(key_dim)); }

DeltaParams delta_params(const DeltaOp& delta) {
  const GatedDeltaOptions& o = delta.options;
  DeltaParams p{};
  const int64_t keys = o.key_heads * o.key_dim;
  p.qkv_stride = row_stride(delta.qkv);
  p.a_stride = row_stride(delta.a);
  p.b_stride = row_stride(delta.b);
  p.out = heads_layout(delta.out);
  p.key_at = static_cast<u32>(keys);
  p.value_at = static_cast<u32>(2 * keys);
  p.tokens = delta.states.tokens_each(rows_of(delta.qkv));
  p.key_heads = static_cast<u32>(o.key_heads);
  p.heads_together = static_cast<u32>(o.heads_together());
  p.key_dim = static_cast<u32>(o.key_dim);
  p.value_dim = static_cast<u32>(o.value_dim);
  const bool has_wide_decays = !o.row_decay || (is_wide(delta.a) && is_wide(delta.dt_bias));
  p.wide = is_wide(delta.qkv) && has_wide_decays && p.key_dim % 4 == 0 && p.value_dim % 4 == 0;
  p.query_factor = query_factor(o.key_dim);
  p.decay_bound = o.decay_bound;
  return p;
}

DeltaParams scan_params(const ScanOp& scan) {
  const ScanOptions& o = scan.options;
  const int64_t inner = o.heads * o.head_dim;
  DeltaParams p{};
  p.qkv_stride = row_stride(scan.xbc);
  p.a_stride = row_stride(scan.dt);
  p.out = heads_layout(scan.out);
  p.key_at = static_cast<u32>(inner);
  p.query_at = static_cast<u32>(inner + o.groups * o.state_dim);
  p.tokens = scan.states.tokens_each(rows_of(scan.xbc));
  p.key_heads = static_cast<u32>(o.groups);
  p.heads_together = static_cast<u32>(o.heads / o.groups);
  p.key_dim = static_cast<u32>(o.state_dim);
  p.value_dim = static_cast<u32>(o.head_dim);
  p.wide = is_wide(scan.xbc) && p.key_dim % 4 == 0 && p.value_dim % 4 == 0;
  return p;
}

void bind_inputs(Plan& plan, const DeltaOp& delta) {
  for (const Tensor& tensor : {delta.qkv, delta.a, delta.b, delta.a_log, delta.dt_bias}) {
    plan.bind(range_of(tensor, Access::kRead));
  }
}

// Units of 32 rows of keys that a kernel is made for.
uint32_t key_units(const DeltaParams& p) { return p.key_dim <= 128 ? 4 : 8; }

// Two blocks of tokens, and a token after each. Rows of keys: of the key and the query, and where
// rows decay by themselves of decays and decayed keys.
uint32_t block_bytes(const DeltaParams& p, uint32_t rows) {
  return 2 * (p.block_tokens + 1) * (rows * key_units(p) * kSimdLanes + kDeltaTokenWords) *
         static_cast<uint32_t>(sizeof(float));
}

Plan plan_heads(KernelId kernel, DeltaParams& p, uint32_t heads, uint32_t rows,
                const StateTable& states, const Platform& platform) {
  p.has_states = states.is_null() ? 0 : 1;
  p.block_tokens = kDeltaStagers * kDeltaStageUnits / key_units(p);
  if (block_bytes(p, rows) > platform.shared_bytes_max()) p.block_tokens = kDeltaBlockMin;
  Plan plan = make_plan(kernel, {groups_for(p.value_dim, kDeltaColumns), heads, states.sequences()},
                        kDeltaThreads);
  plan.shared_bytes = block_bytes(p, rows);
  plan.set_params(p);
  return plan;
}

}  // namespace

Plan plan_delta(const DeltaOp& delta, const Platform& platform) {
  DeltaParams p = delta_params(delta);
  const bool by_rows = delta.options.row_decay;
  const KernelId whole =
      key_units(p) == 4 ? KernelId::gated_delta_heads : KernelId::gated_delta_heads_wide;
  Plan plan = plan_heads(by_rows ? KernelId::gated_delta_row_heads : whole, p,
                         static_cast<u32>(delta.options.value_heads), by_rows ? 4 : 2, delta.states,
                         platform);
  bind_inputs(plan, delta);
  plan.bind(range_of(delta.state, Access::kReadWrite));
  bind_output(plan, delta.out);
  plan.bind(delta.states.addresses);
  return plan;
}

Plan plan_scan(const ScanOp& scan, const Platform& platform) {
  DeltaParams p = scan_params(scan);
  Plan plan = plan_heads(KernelId::selective_scan_heads, p, static_cast<u32>(scan.options.heads), 2,
                         scan.states, platform);
  for (const Tensor& tensor :
       {scan.xbc, scan.dt, scan.weights.skip, scan.weights.a_log, scan.weights.dt_bias}) {
    plan.bind(range_of(tensor, Access::kRead));
  }
  plan.bind(range_of(scan.state, Access::kReadWrite));
  bind_output(plan, scan.out);
  plan.bind(scan.states.addresses);
  return plan;
}

Plan plan_delta_one(const Recorder& recorder, const Delta& waiting, const Tensor& gate,
                    Activation activation) {
  const DeltaOp& delta = waiting.op;
  const NormOp& norm = waiting.norm;
  DeltaOneParams p{};
  p.qkv_stride = row_stride(delta.qkv);
  p.a_stride = row_stride(delta.a);
  p.b_stride = row_stride(delta.b);
  const HeadsLayout out = heads_layout(delta.out);
  p.out_stride = out.token_stride;
  p.out_head_stride = out.head_stride;
  if (!gate.is_null()) {
    const HeadsLayout layout = heads_layout(gate);
    p.gate_stride = layout.token_stride;
    p.gate_head_stride = layout.head_stride;
  }
  const GatedDeltaOptions& o = delta.options;
  p.key_heads = static_cast<u32>(o.key_heads);
  p.key_head_step = static_cast<u32>(o.tiled_value_heads ? 1 : o.heads_per_key());
  p.value_head_step = static_cast<u32>(o.tiled_value_heads ? o.key_heads : 1);
  p.query_factor = query_factor(kDeltaOneDim);
  p.has_norm = norm.out.is_null() ? 0 : 1;
  p.has_gate = gate.is_null() ? 0 : 1;
  p.gate_activation = activation_code(activation);
  p.epsilon = norm.eps;
  p.decay_bound = o.decay_bound;
  p.has_states = delta.states.is_null() ? 0 : 1;
  p.early = p.has_states != 0 || recorder.has_just_written(delta.state) ? 0 : 1;
  const u32 words = o.row_decay ? kDeltaOneRowWords : kDeltaOneWords;
  Plan plan =
      make_plan(o.row_decay ? KernelId::gated_delta_rows_t1_d128 : KernelId::gated_delta_t1_d128,
                {static_cast<u32>(o.heads_per_key()), p.key_heads, delta.states.sequences()},
                kDeltaOneThreads, words * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  bind_inputs(plan, delta);
  plan.bind(range_of(norm.weight, Access::kRead));
  plan.bind(range_of(gate, Access::kRead));
  plan.bind(range_of(delta.state, Access::kReadWrite));
  bind_output(plan, delta.out);
  plan.bind(delta.states.addresses);
  return plan;
}

}  // namespace moeflux::gpu
