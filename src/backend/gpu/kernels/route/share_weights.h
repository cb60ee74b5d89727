// The weights of chosen experts and of those that every token has: a thread a token.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

MF_KERNEL(share_weights, ShareWeightsParams, MF_READ(0, f32, logits), MF_WRITE(1, f32, weights),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const u32 token = t.group.x * t.threads + t.index;
  if (token >= p.tokens) return;
  MF_GLOBAL(const f32) row = logits + token * p.logits_stride;
  MF_GLOBAL(f32) chosen = weights + static_cast<u64>(token) * p.top_k;
  MF_GLOBAL(f32) shared = out + static_cast<u64>(token) * p.shared;
  f32 sum = 0.0f;
  for (u32 r = 0u; r < p.top_k; ++r) sum = sum + chosen[r];
  for (u32 s = 0u; s < p.shared; ++s) sum = sum + sigmoid(row[s]);
  const f32 factor = p.scale / sum;
  for (u32 r = 0u; r < p.top_k; ++r) chosen[r] = chosen[r] * factor;
  for (u32 s = 0u; s < p.shared; ++s) shared[s] = sigmoid(row[s]) * factor;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
