// Rotary positions: a thread a pair of elements.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

MF_KERNEL(rope_heads, RopeParams, MF_READ(0, i32, positions), MF_READ(1, f32, frequencies),
          MF_WRITE(2, f32, x)) {
  MF_THREAD;
  const u64 i = static_cast<u64>(t.group.x) * t.threads + t.index;
  const u32 row = static_cast<u32>(i / p.half);
  if (row >= p.tokens * p.heads) return;
  const u32 pair = static_cast<u32>(i - static_cast<u64>(row) * p.half);
  const u32 token = row / p.heads;
  const u32 head = row - token * p.heads;
  const f32 angle = static_cast<f32>(positions[token]) * frequencies[pair];
  const f32 cosine = mf_cos(angle) * p.factor;
  const f32 sine = mf_sin(angle) * p.factor;
  const u64 at = token * p.token_stride + head * p.head_stride;
  const u64 first = at + (p.interleaved != 0u ? 2u * pair : pair);
  const u64 second = first + (p.interleaved != 0u ? 1u : p.half);
  const f32 a = x[first];
  const f32 b = x[second];
  x[first] = mf_fma(a, cosine, -(b * sine));
  x[second] = mf_fma(b, cosine, a * sine);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
