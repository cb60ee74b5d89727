// Depthwise causal convolution with SiLU or without, and the update of what it remembers.
#pragma once

#include "backend/gpu/kernels/delta/conv_past.h"
#include "backend/gpu/kernels/delta/params.h"
#include "backend/gpu/kernels/rows/elements.h"
#include "backend/gpu/kernels/segments.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// activate() knows more and is inlined for every output that a thread has.
MF_FN f32 activated(f32 sum, u32 activation) { return activation == 0u ? silu(sum) : sum; }

/// Input `at` of `channel`, counted from the oldest in the state.
MF_FN f32 conv_input(MF_PARAMS(ConvParams) p, MF_GLOBAL(const f32) x, MF_GLOBAL(const f32) state,
                     u32 at, u32 channel) {
  const u32 past = p.taps - 1u;
  return at < past ? state[static_cast<u64>(at) * p.channels + channel]
                   : x[(at - past) * p.x_stride + channel];
}

/// Tokens that a thread has together, and taps up to which it reads what they share once.
enum : u32 { kConvInputs = kConvTokens - 1u + kConvTapsHeld };

/// Tokens of a group, of those of its sequence, by a thread: from `first` on, of CHANNELS channels
/// and up to kConvTapsHeld taps. Only the first tokens need the state's inputs, so their thread
/// writes the new ones there.
template <u32 CHANNELS>
MF_FN void conv_held(MF_T t, MF_PARAMS(ConvParams) p, u32 first, u32 tokens, u32 channel,
                     MF_GLOBAL(const f32) x, MF_GLOBAL(const f32) weight, MF_GLOBAL(const f32) bias,
                     MF_GLOBAL(f32) state, MF_GLOBAL(f32) out) {
  const u32 left = tokens - first;
  const u32 count = left < kConvTokens ? left : static_cast<u32>(kConvTokens);
  const u32 past = p.taps - 1u;
  f32 weights[kConvTapsHeld][CHANNELS];
  MF_UNROLL
  for (u32 k = 0u; k < CHANNELS; ++k) {
    MF_UNROLL
    for (u32 j = 0u; j < kConvTapsHeld; ++j) {
      weights[j][k] = j < p.taps ? weight[(channel + k) * p.taps + j] : 0.0f;
    }
  }
  F4 begin = {{0.0f, 0.0f, 0.0f, 0.0f}};
  if (p.has_bias != 0u) {
    MF_UNROLL
    for (u32 k = 0u; k < CHANNELS; ++k) begin.v[k] = bias[channel + k];
  }
  await_inputs(t);
  F4 inputs[kConvInputs];
  MF_UNROLL
  for (u32 i = 0u; i < kConvInputs; ++i) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    inputs[i] = nothing;
    if (i >= count + past) continue;
    const u32 at = first + i;
    if (at < past) {
      inputs[i] = load_some(MF_CAST(const f32, state) + static_cast<u64>(at) * p.channels, channel,
                            CHANNELS / 4u);
    } else {
      inputs[i] = load_some(x + (at - past) * p.x_stride, channel, CHANNELS / 4u);
    }
  }
  MF_UNROLL
  for (u32 i = 0u; i < kConvTokens; ++i) {
    F4 sums = begin;
    MF_UNROLL
    for (u32 k = 0u; k < CHANNELS; ++k) {
      MF_UNROLL
      for (u32 j = 0u; j < kConvTapsHeld; ++j) {
        if (j < p.taps) sums.v[k] = mf_fma(weights[j][k], inputs[i + j].v[k], sums.v[k]);
      }
    }
    if (p.activation == 0u) {  // one branch for all channels
      MF_UNROLL
      for (u32 k = 0u; k < CHANNELS; ++k) sums.v[k] = silu(sums.v[k]);
    }
    if (i < count) {
      store_some(out + (first + i) * p.out_stride, channel, CHANNELS / 4u, sums);
    }
  }
  if (first > 0u) return;
  if (tokens <= kConvTokens) {  // the thread has them all
    MF_UNROLL
    for (u32 i = 0u; i < kConvInputs; ++i) {
      if (i < tokens || i >= tokens + past) continue;
      store_some(state + static_cast<u64>(i - tokens) * p.channels, channel, CHANNELS / 4u,
                 inputs[i]);
    }
    return;
  }
  for (u32 j = 0u; j < past; ++j) {
    store_some(state + static_cast<u64>(j) * p.channels, channel, CHANNELS / 4u,
               load_some(x + (tokens - past + j) * p.x_stride, channel, CHANNELS / 4u));
  }
}

/// A thread a channel, or four where p.wide; group y: kConvTokens tokens. A token's sum goes from
/// the oldest input on. With up to kConvTapsHeld taps, state becomes the last taps - 1 inputs.
MF_KERNEL(causal_conv_rows, ConvParams, MF_READ(0, f32, x), MF_CONST(1, f32, weight),
          MF_CONST(2, f32, bias), MF_WRITE(3, f32, state), MF_WRITE(4, f32, out)) {
  MF_THREAD_EARLY;
  const u32 channel = (t.group.x * t.threads + t.index) * (p.wide != 0u ? 4u : 1u);
  if (channel >= p.channels) return;
  if (p.wide != 0u) {
    return conv_held<4u>(t, p, t.group.y * kConvTokens, p.tokens, channel, x, weight, bias, state,
                         out);
  }
  if (p.taps <= kConvTapsHeld) {
    return conv_held<1u>(t, p, t.group.y * kConvTokens, p.tokens, channel, x, weight, bias, state,
                         out);
  }
  await_inputs(t);
  const u32 first = t.group.y * kConvTokens;
  for (u32 i = first; i < first + kConvTokens && i < p.tokens; ++i) {
    f32 sum = p.has_bias != 0u ? bias[channel] : 0.0f;
    for (u32 j = 0u; j < p.taps; ++j) {
      sum = mf_fma(weight[channel * p.taps + j],
                   conv_input(p, x, MF_CAST(const f32, state), i + j, channel), sum);
    }
    out[i * p.out_stride + channel] = activated(sum, p.activation);
  }
}

/// The same of several sequences, whose states are by address, with up to kConvTapsHeld taps. Group
/// y: kConvTokens tokens of one of them.
MF_KERNEL(causal_conv_segments, ConvParams, MF_READ(0, f32, x), MF_CONST(1, f32, weight),
          MF_CONST(2, f32, bias), MF_WRITE(3, f32, out), MF_CONST(4, u64, states),
          MF_CONST(5, u64, segments), MF_CONST(6, u64, blocks)) {
  MF_THREAD_EARLY;
  const u32 channel = (t.group.x * t.threads + t.index) * (p.wide != 0u ? 4u : 1u);
  if (channel >= p.channels) return;
  const Segment block = segment_of(blocks[t.group.y]);
  const Segment rows = segment_of(segments[block.number]);
  MF_GLOBAL(f32) state = MF_AT(t, f32, states[block.number]);
  MF_GLOBAL(const f32) own = x + rows.first * p.x_stride;
  MF_GLOBAL(f32) to = out + rows.first * p.out_stride;
  if (p.wide != 0u) {
    conv_held<4u>(t, p, block.first, rows.number, channel, own, weight, bias, state, to);
  } else {
    conv_held<1u>(t, p, block.first, rows.number, channel, own, weight, bias, state, to);
  }
}

/// Both kernels for a single token and few taps. A thread a channel; group y: the sequence, of
/// several.
MF_KERNEL(causal_conv_t1, ConvParams, MF_READ(0, f32, x), MF_CONST(1, f32, weight),
          MF_CONST(2, f32, bias), MF_WRITE(3, f32, state), MF_WRITE(4, f32, out),
          MF_CONST(5, u64, states)) {
  MF_THREAD;
  const u32 channel = t.group.x * t.threads + t.index;
  if (channel >= p.channels) return;
  const u32 row = t.group.y;
  MF_GLOBAL(f32) own = state;
  if (p.has_states != 0u) own = MF_AT(t, f32, states[row]);
  const ConvPast past = conv_past(weight, own, p.taps, p.channels, channel);
  const f32 begin = p.has_bias != 0u ? bias[channel] : 0.0f;
  const f32 input = x[row * p.x_stride + channel];
  out[row * p.out_stride + channel] =
      activated(conv_one(&past, begin, input, own, p.taps, p.channels, channel), p.activation);
}

/// The same for more taps. A thread a channel, oldest first, so that no input that is still needed
/// has been overwritten.
MF_KERNEL(causal_conv_shift, ConvParams, MF_READ(0, f32, x), MF_WRITE(1, f32, state)) {
  MF_THREAD;
  const u32 channel = t.group.x * t.threads + t.index;
  if (channel >= p.channels) return;
  for (u32 j = 0u; j + 1u < p.taps; ++j) {
    const u32 at = j + p.tokens;
    const u32 past = p.taps - 1u;
    const f32 value = at < past ? state[static_cast<u64>(at) * p.channels + channel]
                                : x[(at - past) * p.x_stride + channel];
    state[static_cast<u64>(j) * p.channels + channel] = value;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
