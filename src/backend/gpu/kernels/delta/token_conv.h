// Depthwise causal convolution whose taps depend on the token.
#pragma once

#include "backend/gpu/kernels/delta/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A thread a channel; group y: a token. A sum goes from the oldest input on.
MF_KERNEL(token_conv, TokenConvParams, MF_READ(0, f32, x), MF_CONST(1, f32, weight),
          MF_READ(2, f32, shares), MF_READ(3, f32, state), MF_WRITE(4, f32, out)) {
  MF_THREAD;
  const u32 channel = t.group.x * t.threads + t.index;
  if (channel >= p.channels) return;
  const u32 token = t.group.y;
  const u32 group = channel / (p.channels / p.groups);
  MF_GLOBAL(const f32) own = shares + (static_cast<u64>(token) * p.groups + group) * p.taps;
  f32 sum = 0.0f;
  for (u32 i = 0u; i < p.taps; ++i) {
    const u32 back = p.taps - 1u - i;
    const f32 input = token >= back ? x[(token - back) * p.x_stride + channel]
                                    : state[static_cast<u64>(token + i) * p.channels + channel];
    sum = mf_fma(weight[static_cast<u64>(back) * p.channels + channel] + own[back], input, sum);
  }
  out[token * p.out_stride + channel] = sum;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
