// The delta rule of few tokens may go on through the norm of its heads and their gate.
#include "backend/ops/gated_delta.h"

#include <cmath>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/delta_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"
#include "backend/gpu/supports.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

// Heads a multiprocessor beyond which groups have them in turn.
constexpr uint32_t kDeltaListUnits = 2;

float query_factor(int64_t key_dim) { return 1.0f / std::sqrt(static_cast<float>(key_dim)); }

DeltaParams delta_params(const ops::GatedDelta& delta, const StateTable& states) {
  const GatedDeltaOptions& o = delta.options;
  DeltaParams p{};
  const int64_t keys = o.key_heads * o.key_dim;
  p.qkv_stride = row_stride(delta.qkv);
  p.a_stride = row_stride(delta.a);
  p.b_stride = row_stride(delta.b);
  p.out = heads_layout(delta.out);
  p.key_at = static_cast<u32>(keys);
  p.value_at = static_cast<u32>(2 * keys);
  p.tokens = states.tokens_each(rows_of(delta.qkv));
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

void bind_inputs(Plan& plan, const ops::GatedDelta& delta) {
  for (const Tensor& tensor : {delta.qkv, delta.a, delta.b, delta.a_log, delta.dt_bias}) {
    plan.bind(range_of(tensor, Access::kRead));
  }
}

// Many tokens, or heads of other sizes than the kernel for one knows.
Plan plan_delta(const ops::GatedDelta& delta, const StateTable& states, const Platform& platform) {
  DeltaParams p = delta_params(delta, states);
  const bool by_rows = delta.options.row_decay;
  constexpr DeltaKernel kWhole{KernelId::gated_delta_heads, KernelId::gated_delta_segments};
  constexpr DeltaKernel kWide{KernelId::gated_delta_heads_wide,
                              KernelId::gated_delta_segments_wide};
  constexpr DeltaKernel kByRows{KernelId::gated_delta_row_heads,
                                KernelId::gated_delta_row_segments};
  Plan plan = plan_delta_heads(by_rows             ? kByRows
                               : key_units(p) == 4 ? kWhole
                                                   : kWide,
                               p, static_cast<u32>(delta.options.value_heads), by_rows ? 4 : 2,
                               states, platform);
  bind_inputs(plan, delta);
  bind_states(plan, states, delta.out);
  return plan;
}

// Groups of a head each, or, for many sequences, groups that have heads in turn.
Plan empty_delta_one(DeltaOneParams& p, bool row_decay, const StateTable& states,
                     const Platform& platform) {
  constexpr uint32_t kWordBytes = sizeof(float);
  const uint32_t units = p.heads_per_key * p.key_heads * states.sequences();
  if (p.has_states != 0 && p.tokens == 1 && units > kDeltaListUnits * platform.cores() &&
      kDeltaListWords * kWordBytes <= platform.shared_bytes_max()) {
    p.units = units;
    p.groups = platform.cores();
    Plan plan = make_plan(
        row_decay ? KernelId::gated_delta_rows_list_t1_d128 : KernelId::gated_delta_list_t1_d128,
        {p.groups, 1, 1}, kDeltaOneThreads);
    plan.shared_bytes = kDeltaListWords * kWordBytes;
    return plan;
  }
  return make_plan(row_decay ? KernelId::gated_delta_rows_t1_d128 : KernelId::gated_delta_t1_d128,
                   {p.heads_per_key, p.key_heads, states.sequences()}, kDeltaOneThreads,
                   (row_decay ? kDeltaOneRowWords : kDeltaOneWords) * kWordBytes);
}

}  // namespace

Plan plan_delta_one(const Recorder& recorder, const DeltaOp& waiting, const Tensor& gate,
                    Activation activation) {
  const ops::GatedDelta& delta = waiting.op;
  const StateTable& states = waiting.states;
  const ops::RmsNorm& norm = waiting.norm;
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
  p.has_states = states.is_null() ? 0 : 1;
  p.early = p.has_states != 0 || recorder.has_just_written(states.state) ? 0 : 1;
  p.heads_per_key = static_cast<u32>(o.heads_per_key());
  p.tokens = states.tokens_each(rows_of(delta.qkv));
  Plan plan = empty_delta_one(p, o.row_decay, states, recorder.platform());
  plan.set_params(p);
  bind_inputs(plan, delta);
  plan.bind(range_of(norm.weight, Access::kRead));
  plan.bind(range_of(gate, Access::kRead));
  plan.bind(range_of_state(states.state, Access::kReadWrite));
  bind_output(plan, delta.out);
  plan.bind(states.addresses);
  return plan;
}

Status supports(const Platform& /*platform*/, const ops::GatedDelta& op) {
  const GatedDeltaOptions& o = op.options;
  const int64_t most = o.row_decay ? kRowDeltaKeyDimMax : kDeltaKeyDimMax;
  if (o.key_dim <= most) return {};
  return make_error(ErrorCode::kUnsupported, "gated_delta: keys of {} per head{}, at most {}",
                    o.key_dim, o.row_decay ? " that decay by rows" : "", most);
}

void run(GpuContext& gpu, const ops::GatedDelta& op) {
  for_each_states(gpu, op, Joins::kAll, [&](const ops::GatedDelta& own, const StateTable& states) {
    if (gpu.fuse(DeltaOp{own, states}) != Action::kLaunch) return;
    gpu.recorder().record(plan_delta(own, states, gpu.platform()), states.writes());
  });
}

}  // namespace moeflux::gpu
