// The experts of tokens that a table lists: a SIMD group a token.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/choice.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// kRouteSimds tokens a group. `table` is [vocab, top_k], of at most 32 ranks.
MF_KERNEL(route_listed, RouteParams, MF_READ(0, f32, logits), MF_READ(1, i32, tokens),
          MF_CONST(2, i32, table), MF_READ(3, f32, expert_scale), MF_WRITE(4, i32, ids),
          MF_WRITE(5, f32, weights)) {
  MF_THREAD;
  const u32 token = t.group.x * kRouteSimds + t.simd;
  if (token >= p.tokens) return;
  const u64 listed = static_cast<u64>(static_cast<u32>(tokens[token])) * p.top_k;
  const u32 rank = t.lane < p.top_k ? t.lane : 0u;
  const u32 id = static_cast<u32>(table[listed + rank]);
  const u64 first = static_cast<u64>(token) * p.top_k;
  route_weights(t, p, id, logits + token * p.logits_stride, expert_scale, ids + first,
                weights + first);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
