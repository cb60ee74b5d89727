// Rotary positions: a thread a pair of elements.
#pragma once

#include "backend/gpu/kernels/attention/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

struct Turn {
  f32 cosine;
  f32 sine;
};
MF_FN Turn turn_of(i32 position, f32 frequency, f32 factor) {
  const f32 angle = static_cast<f32>(position) * frequency;
  return Turn{mf_cos(angle) * factor, mf_sin(angle) * factor};
}

/// The position that heads turn by.
MF_FN i32 turning_position(i32 position, u32 unit) {
  return unit > 1u ? position - position % static_cast<i32>(unit) : position;
}

struct Rotated {
  f32 first;
  f32 second;
};
MF_FN Rotated rotated(f32 a, f32 b, Turn turn) {
  return Rotated{mf_fma(a, turn.cosine, -(b * turn.sine)), mf_fma(b, turn.cosine, a * turn.sine)};
}

MF_KERNEL(rope_heads, RopeParams, MF_READ(0, i32, positions), MF_READ(1, f32, frequencies),
          MF_WRITE(2, f32, x)) {
  MF_THREAD;
  const u64 i = static_cast<u64>(t.group.x) * t.threads + t.index;
  const u32 row = static_cast<u32>(i / p.half);
  if (row >= p.tokens * p.heads) return;
  const u32 pair = static_cast<u32>(i - static_cast<u64>(row) * p.half);
  const u32 token = row / p.heads;
  const u32 head = row - token * p.heads;
  const u64 at = token * p.token_stride + head * p.head_stride;
  const u64 first = at + (p.interleaved != 0u ? 2u * pair : pair);
  const u64 second = first + (p.interleaved != 0u ? 1u : p.half);
  const i32 position = turning_position(positions[token], p.unit);
  const Rotated both = rotated(x[first], x[second], turn_of(position, frequencies[pair], p.factor));
  x[first] = both.first;
  x[second] = both.second;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
