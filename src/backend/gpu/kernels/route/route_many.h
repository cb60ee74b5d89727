// The experts of many tokens: a SIMD group a token.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/choice.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// All ranks of a token to ids and weights, by a SIMD group whose lanes judge PER experts each:
/// what route_token finds with a group, in more steps but for more tokens at once.
template <u32 PER>
MF_FN void route_simd_token(MF_T t, MF_PARAMS(RouteParams) p, u32 token,
                            MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction,
                            MF_GLOBAL(const f32) expert_scale, MF_GLOBAL(i32) ids,
                            MF_GLOBAL(f32) weights) {
  MF_GLOBAL(const f32) row = logits + token * p.logits_stride;
  RouteBest own[PER];
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    own[i].id = t.lane + i * 32u;
    own[i].order = 0u;
    if (own[i].id < p.experts)
      own[i].order = route_choice(p, row[own[i].id], correction, own[i].id);
  }
  if (p.num_groups > 1u) route_drop_groups<PER>(t, p, own);
  u32 wanted = kNoEntry;
  MF_ROLLED
  for (u32 r = 0u; r < p.top_k; ++r) {
    const u32 id = route_take<PER>(t, own).id;
    if (t.lane == r) wanted = id;
  }
  const u64 first = static_cast<u64>(token) * p.top_k;
  route_weights(t, p, wanted, row, expert_scale, ids + first, weights + first);
}

/// kRouteSimds tokens a group, a SIMD group each.
MF_KERNEL(route_many, RouteParams, MF_READ(0, f32, logits), MF_READ(1, f32, correction),
          MF_READ(2, f32, expert_scale), MF_WRITE(3, i32, ids), MF_WRITE(4, f32, weights)) {
  MF_THREAD;
  const u32 token = t.group.x * kRouteSimds + t.simd;
  if (token >= p.tokens) return;
  if (p.thread_experts == 1u) {
    route_simd_token<kRouteThreads / 32u>(t, p, token, logits, correction, expert_scale, ids,
                                          weights);
  } else {
    route_simd_token<kRouteExpertsMax / 32u>(t, p, token, logits, correction, expert_scale, ids,
                                             weights);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
