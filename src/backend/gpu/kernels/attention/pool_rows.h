// Rows of pools of tokens at absolute positions, weighed by a softmax over each column's gates.
#pragma once

#include "backend/gpu/kernels/attention/select_params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where x, the gate and the bias of the token at position `s` are, for the one in `row` at
/// `position`: among the rows, or in the state.
struct PoolMember {
  MF_GLOBAL(const f32) x;
  MF_GLOBAL(const f32) gate;
  u32 bias;
};
MF_FN PoolMember pool_member(MF_PARAMS(PoolParams) p, MF_GLOBAL(const f32) x,
                             MF_GLOBAL(const f32) gate, MF_GLOBAL(const f32) state, u32 row,
                             u32 position, u32 s) {
  const u32 back = position - s;
  const u32 half = p.kept != p.unit && s >= position - position % p.unit ? p.out_cols : 0u;
  const u32 bias = s % p.unit * p.cols + half;
  if (back <= row) {
    const u64 at = static_cast<u64>(row - back) * p.cols + half;
    const PoolMember here = {x + at, p.weighs != 0u ? gate + at : x + at, bias};
    return here;
  }
  MF_GLOBAL(const f32)
  kept = state + static_cast<u64>(s % p.kept) * p.cols * (p.weighs != 0u ? 2u : 1u) + half;
  const PoolMember there = {kept, p.weighs != 0u ? kept + p.cols : kept, bias};
  return there;
}

/// Tokens of a pool whose numbers are on their way together.
enum : u32 { kPoolBatch = 8 };

/// One column of up to kPoolBatch tokens from position `s` on; behind `last` that one again.
struct PoolBatch {
  f32 x[kPoolBatch];
  f32 logits[kPoolBatch];

  MF_FN_MEMBER void load(MF_PARAMS(PoolParams) p, MF_GLOBAL(const f32) rows,
                         MF_GLOBAL(const f32) gates, MF_GLOBAL(const f32) bias,
                         MF_GLOBAL(const f32) state, u32 row, u32 last, u32 s, u32 col) {
    MF_UNROLL
    for (u32 i = 0u; i < kPoolBatch; ++i) {
      const PoolMember member =
          pool_member(p, rows, gates, state, row, last, s + i < last ? s + i : last);
      x[i] = member.x[col];
      logits[i] = p.weighs != 0u ? member.gate[col] + bias[member.bias + col] : 0.0f;
    }
  }
};

/// Group x: columns; y: tokens; z: the sequence, of several. Only the first tokens look for others
/// in the state, so their threads write the new ones there, behind what they compute.
MF_KERNEL(pool_rows, PoolParams, MF_READ(0, f32, x), MF_READ(1, f32, gate), MF_CONST(2, f32, bias),
          MF_READ(3, i32, positions), MF_WRITE(4, f32, state), MF_WRITE(5, f32, out),
          MF_CONST(6, u64, states)) {
  MF_THREAD;
  const u32 col = t.group.x * t.threads + t.index;
  if (col >= p.out_cols) return;
  if (p.has_states != 0u) {
    const u32 sequence = t.group.z;
    x = x + static_cast<u64>(sequence) * p.cols;
    if (p.weighs != 0u) gate = gate + static_cast<u64>(sequence) * p.cols;
    positions = positions + sequence;
    state = MF_AT(t, f32, states[sequence]);
    out = out + static_cast<u64>(sequence) * p.out_cols;
  }
  MF_GLOBAL(const f32) past = MF_CAST(const f32, state);
  const u32 first = t.group.y * p.group_tokens;
  for (u32 row = first; row < first + p.group_tokens && row < p.tokens; ++row) {
    const u32 position = static_cast<u32>(positions[row]);
    const u32 before = position % p.unit + p.kept - p.unit;  // in the pool, at most
    const u32 from = position > before ? position - before : 0u;
    PoolBatch batch;
    batch.load(p, x, gate, bias, past, row, position, from, col);
    f32 most = batch.logits[0];
    for (u32 s = from; p.weighs != 0u && s <= position; s += kPoolBatch) {
      if (s > from) batch.load(p, x, gate, bias, past, row, position, s, col);
      MF_UNROLL
      for (u32 i = 0u; i < kPoolBatch; ++i) most = mf_max(most, batch.logits[i]);
    }
    f32 total = 0.0f;
    f32 sum = 0.0f;
    for (u32 s = from; s <= position; s += kPoolBatch) {
      // A pool of one batch is still there.
      if (position - from >= kPoolBatch) {
        batch.load(p, x, gate, bias, past, row, position, s, col);
      }
      MF_UNROLL
      for (u32 i = 0u; i < kPoolBatch; ++i) {
        if (s + i > position) continue;
        const f32 share = p.weighs != 0u ? mf_exp(batch.logits[i] - most) : 1.0f;
        total = total + share;
        sum = mf_fma(share, batch.x[i], sum);
      }
    }
    out[static_cast<u64>(row) * p.out_cols + col] = sum / total;
  }
  if (first > 0u) return;
  // A thread has a column of each half.
  for (u32 half = 0u; half < p.cols; half += p.out_cols) {
    const u32 begin = p.tokens > p.kept ? p.tokens - p.kept : 0u;
    for (u32 row = begin; row < p.tokens; ++row) {
      const u32 place = static_cast<u32>(positions[row]) % p.kept;
      if (p.kept == p.unit && place + 1u == p.unit) continue;
      const u64 from = static_cast<u64>(row) * p.cols + half + col;
      MF_GLOBAL(f32)
      to = state + static_cast<u64>(place) * p.cols * (p.weighs != 0u ? 2u : 1u) + half;
      to[col] = x[from];
      if (p.weighs != 0u) to[p.cols + col] = gate[from];
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
