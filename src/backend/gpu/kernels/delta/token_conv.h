// Depthwise causal convolution whose taps depend on the token, and the update of what it remembers.
#pragma once

#include "backend/gpu/kernels/delta/params.h"
#include "backend/gpu/kernels/segments.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Tokens of a group, of those of its sequence, by a thread: from `first` on. A sum goes from the
/// oldest input on. Only the first tokens need the state's inputs, so their thread writes the new
/// ones there.
MF_FN void token_conv_some(MF_PARAMS(TokenConvParams) p, u32 first, u32 tokens, u32 channel,
                           MF_GLOBAL(const f32) x, MF_GLOBAL(const f32) weight,
                           MF_GLOBAL(const f32) shares, MF_GLOBAL(f32) state, MF_GLOBAL(f32) out) {
  const u32 past = p.taps - 1u;
  const u32 group = channel / (p.channels / p.groups);
  for (u32 token = first; token < first + p.group_tokens && token < tokens; ++token) {
    MF_GLOBAL(const f32) own = shares + (static_cast<u64>(token) * p.groups + group) * p.taps;
    f32 sum = 0.0f;
    for (u32 i = 0u; i < p.taps; ++i) {
      const u32 back = past - i;
      const f32 input = token >= back ? x[(token - back) * p.x_stride + channel]
                                      : state[static_cast<u64>(token + i) * p.channels + channel];
      sum = mf_fma(weight[static_cast<u64>(back) * p.channels + channel] + own[back], input, sum);
    }
    out[token * p.out_stride + channel] = sum;
  }
  if (first > 0u) return;
  // The oldest first, so that no input that is still needed has been overwritten.
  for (u32 j = 0u; j < past; ++j) {
    const u32 at = j + tokens;
    state[static_cast<u64>(j) * p.channels + channel] =
        at < past ? state[static_cast<u64>(at) * p.channels + channel]
                  : x[(at - past) * p.x_stride + channel];
  }
}

/// A thread a channel. Group y: p.group_tokens tokens; z: the sequence, of several with a token
/// each.
MF_KERNEL(token_conv, TokenConvParams, MF_READ(0, f32, x), MF_CONST(1, f32, weight),
          MF_READ(2, f32, shares), MF_WRITE(3, f32, state), MF_WRITE(4, f32, out),
          MF_CONST(5, u64, states)) {
  MF_THREAD;
  const u32 channel = t.group.x * t.threads + t.index;
  if (channel >= p.channels) return;
  const u32 row = t.group.z;
  MF_GLOBAL(f32) own = state;
  if (p.has_states != 0u) own = MF_AT(t, f32, states[row]);
  token_conv_some(p, t.group.y * p.group_tokens, p.tokens, channel, x + row * p.x_stride, weight,
                  shares + static_cast<u64>(row) * p.groups * p.taps, own,
                  out + row * p.out_stride);
}

/// The same of several sequences with more tokens. Group y: kConvTokens tokens of one of them.
MF_KERNEL(token_conv_segments, TokenConvParams, MF_READ(0, f32, x), MF_CONST(1, f32, weight),
          MF_READ(2, f32, shares), MF_WRITE(3, f32, out), MF_CONST(4, u64, states),
          MF_CONST(5, u64, segments), MF_CONST(6, u64, blocks)) {
  MF_THREAD;
  const u32 channel = t.group.x * t.threads + t.index;
  if (channel >= p.channels) return;
  const Segment block = segment_of(blocks[t.group.y]);
  const Segment rows = segment_of(segments[block.number]);
  MF_GLOBAL(f32) state = MF_AT(t, f32, states[block.number]);
  token_conv_some(p, block.first, rows.number, channel, x + rows.first * p.x_stride, weight,
                  shares + static_cast<u64>(rows.first) * p.groups * p.taps, state,
                  out + rows.first * p.out_stride);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
