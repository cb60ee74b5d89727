// The experts of few tokens: a group a token.
#pragma once

#include "backend/gpu/kernels/route/choice.h"
#include "backend/gpu/kernels/route/group_choice.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Group x: a token; 256 threads, or 32 that share scores, choices, groups, and what was chosen.
MF_KERNEL(route_tokens, RouteParams, MF_READ(0, f32, logits), MF_READ(1, f32, correction),
          MF_READ(2, f32, expert_scale), MF_WRITE(3, i32, ids), MF_WRITE(4, f32, weights)) {
  MF_THREAD;
  const u32 token = t.group.x;
  if (p.thread_experts != 0u) {
    MF_SHARED(u32) shared = MF_SHARED_AT(t, u32, 0u);
    MF_GLOBAL(const f32) row = logits + token * p.logits_stride;
    route_choose(t, p, p.top_k, shared, row, correction);
    barrier(t);
    route_write(t, p, token, shared, row, expert_scale, ids, weights);
    return;
  }
  MF_SHARED(f32) scores = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) choices = scores + p.experts;
  MF_SHARED(f32) groups = choices + p.experts;
  MF_SHARED(u32) chosen = MF_SHARED_AT(t, u32, (2u * p.experts + p.num_groups) * 4u);
  route_scores(t, p, logits + token * p.logits_stride, correction, scores, choices);
  if (p.num_groups > 1u) mask_groups(t, p, choices, groups);
  u32 taken = 0u;
  f32 sum = p.normalize_epsilon;
  for (u32 rank = 0u; rank < p.top_k; ++rank) {
    const u32 id = best_choice(t, p.experts, choices, taken);
    sum = sum + scores[id];
    if (id % 32u == t.lane) taken |= 1u << (id / 32u);
    if (t.lane == 0u) chosen[rank] = id;
  }
  sum = mf_max(sum, p.normalize_least);
  simd_barrier(t);
  for (u32 rank = t.lane; rank < p.top_k; rank += 32u) {
    const u32 id = chosen[rank];
    f32 weight = scores[id] * p.scale;
    if (p.normalize != 0u) weight = weight / sum;
    if (p.has_expert_scale != 0u) weight = weight * expert_scale[id];
    ids[static_cast<u64>(token) * p.top_k + rank] = static_cast<i32>(id);
    weights[static_cast<u64>(token) * p.top_k + rank] = weight;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
