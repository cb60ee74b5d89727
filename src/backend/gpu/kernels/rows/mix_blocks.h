// Attention of a token to its states behind blocks of layers.
#pragma once

#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/elements.h"
#include "backend/gpu/kernels/rows/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Group x: a token. Shared: for each state, the sums of each SIMD group, its score and its factor.
MF_KERNEL(mix_blocks, MixBlocksParams, MF_READ(0, f32, blocks), MF_READ(1, f32, last),
          MF_READ(2, f32, query), MF_WRITE(3, f32, out)) {
  MF_THREAD;
  const u32 token = t.group.x;
  const u32 step = p.wide != 0u ? 4u : 1u;
  const u64 block = static_cast<u64>(p.tokens) * p.cols;
  const u64 row = static_cast<u64>(token) * p.cols;
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) scores = sums + kMixStatesMax * 2u * t.simds;
  MF_SHARED(f32) factors = scores + kMixStatesMax;
  for (u32 b = 0u; b < p.states; ++b) {
    MF_GLOBAL(const f32) state = b + 1u < p.states ? blocks + (b * block + row) : last + row;
    f32 squares = 0.0f;
    f32 product = 0.0f;
    for (u32 c = t.index * step; c < p.cols; c += t.threads * step) {
      const F4 x = load_some(state, c, p.wide);
      const F4 q = load_some(query, c, p.wide);
      squares = add_squares(squares, x);
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) product = mf_fma(x.v[k], q.v[k], product);
    }
    squares = simd_sum(t, squares);
    product = simd_sum(t, product);
    if (t.lane == 0u) {
      sums[(2u * b) * t.simds + t.simd] = squares;
      sums[(2u * b + 1u) * t.simds + t.simd] = product;
    }
  }
  barrier(t);
  for (u32 b = t.index; b < p.states; b += t.threads) {
    f32 squares = 0.0f;
    f32 product = 0.0f;
    for (u32 s = 0u; s < t.simds; ++s) {
      squares = squares + sums[(2u * b) * t.simds + s];
      product = product + sums[(2u * b + 1u) * t.simds + s];
    }
    const f32 factor = norm_factor(squares, p.cols, p.epsilon);
    scores[b] = product * factor * (p.scale * 1.44269504f);  // exponents of 2
    factors[b] = p.sums_normed != 0u ? factor : 1.0f;
  }
  barrier(t);
  f32 largest = scores[0];
  for (u32 b = 1u; b < p.states; ++b) largest = mf_max(largest, scores[b]);
  f32 total = 0.0f;
  for (u32 b = 0u; b < p.states; ++b) total = total + mf_exp2(scores[b] - largest);
  for (u32 c = t.index * step; c < p.cols; c += t.threads * step) {
    F4 sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (u32 b = 0u; b < p.states; ++b) {
      MF_GLOBAL(const f32) state = b + 1u < p.states ? blocks + (b * block + row) : last + row;
      const f32 weight = mf_exp2(scores[b] - largest) / total * factors[b];
      sum = plus_times(sum, weight, load_some(state, c, p.wide));
    }
    store_some(out + row, c, p.wide, sum);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
