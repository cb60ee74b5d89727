// Rows of pools of tokens at absolute positions, weighed by a softmax over each column's gates.
#pragma once

#include "backend/gpu/kernels/attention/select_params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where x and the gate of the token at `place` of a pool are, `back` rows before `row`: among the
/// rows, or in the state.
struct PoolMember {
  MF_GLOBAL(const f32) x;
  MF_GLOBAL(const f32) gate;
};
MF_FN PoolMember pool_member(MF_PARAMS(PoolParams) p, MF_GLOBAL(const f32) x,
                             MF_GLOBAL(const f32) gate, MF_GLOBAL(const f32) state, u32 row,
                             u32 place, u32 back) {
  if (back <= row) {
    const u64 at = static_cast<u64>(row - back) * p.cols;
    const PoolMember here = {x + at, p.weighs != 0u ? gate + at : x + at};
    return here;
  }
  MF_GLOBAL(const f32)
  kept = state + static_cast<u64>(place) * p.cols * (p.weighs != 0u ? 2u : 1u);
  const PoolMember there = {kept, p.weighs != 0u ? kept + p.cols : kept};
  return there;
}

/// Group x: columns; y: tokens. Only the first tokens look for others in the state, so their
/// threads write the new ones there, behind what they compute.
MF_KERNEL(pool_rows, PoolParams, MF_READ(0, f32, x), MF_READ(1, f32, gate), MF_CONST(2, f32, bias),
          MF_READ(3, i32, positions), MF_WRITE(4, f32, state), MF_WRITE(5, f32, out)) {
  MF_THREAD;
  const u32 col = t.group.x * t.threads + t.index;
  if (col >= p.cols) return;
  MF_GLOBAL(const f32) past = MF_CAST(const f32, state);
  const u32 first = t.group.y * p.group_tokens;
  for (u32 row = first; row < first + p.group_tokens && row < p.tokens; ++row) {
    const u32 last = static_cast<u32>(positions[row]) % p.unit;
    f32 most = 0.0f;
    for (u32 j = 0u; p.weighs != 0u && j <= last; ++j) {
      const PoolMember member = pool_member(p, x, gate, past, row, j, last - j);
      const f32 own = member.gate[col] + bias[j * p.cols + col];
      most = j == 0u ? own : mf_max(most, own);
    }
    f32 total = 0.0f;
    f32 sum = 0.0f;
    for (u32 j = 0u; j <= last; ++j) {
      const PoolMember member = pool_member(p, x, gate, past, row, j, last - j);
      f32 share = 1.0f;
      if (p.weighs != 0u) share = mf_exp(member.gate[col] + bias[j * p.cols + col] - most);
      total = total + share;
      sum = mf_fma(share, member.x[col], sum);
    }
    out[static_cast<u64>(row) * p.cols + col] = sum / total;
  }
  if (first > 0u) return;
  const u32 begin = p.tokens > p.unit ? p.tokens - p.unit : 0u;
  for (u32 row = begin; row < p.tokens; ++row) {
    const u32 place = static_cast<u32>(positions[row]) % p.unit;
    if (place + 1u == p.unit) continue;
    const u64 from = static_cast<u64>(row) * p.cols + col;
    MF_GLOBAL(f32) to = state + static_cast<u64>(place) * p.cols * (p.weighs != 0u ? 2u : 1u);
    to[col] = x[from];
    if (p.weighs != 0u) to[p.cols + col] = gate[from];
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
