// The causal convolution of a single token and few taps.
#pragma once

#include "backend/gpu/kernels/delta/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A channel's inputs before a single token, and its weights.
struct ConvPast {
  f32 inputs[kConvOneTapsMax];
  f32 weights[kConvOneTapsMax];
};

MF_FN ConvPast conv_past(MF_GLOBAL(const f32) weight, MF_GLOBAL(f32) state, u32 taps, u32 channels,
                         u32 channel) {
  ConvPast past;
  MF_UNROLL
  for (u32 j = 0u; j < kConvOneTapsMax; ++j) {
    if (j + 1u < taps) past.inputs[j] = state[static_cast<u64>(j) * channels + channel];
    if (j < taps) past.weights[j] = weight[channel * taps + j];
  }
  return past;
}

/// The channel's sum for x on top of `bias`; x becomes the last of the inputs.
MF_FN f32 conv_one(MF_LOCAL(const ConvPast) past, f32 bias, f32 x, MF_GLOBAL(f32) state, u32 taps,
                   u32 channels, u32 channel) {
  f32 sum = bias;
  MF_UNROLL
  for (u32 j = 0u; j < kConvOneTapsMax; ++j) {
    if (j >= taps) continue;
    const f32 input = j + 1u < taps ? past->inputs[j] : x;
    sum = mf_fma(past->weights[j], input, sum);
    if (j > 0u) state[static_cast<u64>(j - 1u) * channels + channel] = input;
  }
  return sum;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
