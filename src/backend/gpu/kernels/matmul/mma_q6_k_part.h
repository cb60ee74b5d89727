// 16 rows in Q6_K times a split of one row of activations: mma_ggml_part.h where the lanes of a row
// have neighbouring words of it. A block of 256 columns begins at any even byte, so only words can
// be read, and lanes with blocks of their own would read them from the same banks.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_octets.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_product.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Four codes of half `half` of the first or the second 64 of 128 columns.
MF_FN u32 q6_k_codes(u32 low, u32 high, u32 second, u32 half) {
  const u32 shift = second * 4u + half * 2u;
  return (low >> (second * 4u) & 0x0f0f0f0fu) |
         ((shift < 4u ? high << (4u - shift) : high >> (shift - 4u)) & 0x30303030u);
}

/// A lane's words of 256 columns of a row, four columns of each group of 16: of every half's 64
/// bytes of lower bits, and of its 32 of upper ones.
struct Q6KWords {
  u32 low[8];
  u32 high[4];

  /// `wide`: the other lanes' rows begin as this one does.
  MF_FN_MEMBER void load(MF_T t, u32 at, bool wide) {
    MF_SHARED(u32) from = MF_SHARED_AT(t, u32, (at & ~3u) + (t.lane & 3u) * 4u);
    if (wide && at % 4u == 0u) {
      MF_UNROLL
      for (u32 i = 0u; i < 8u; ++i) low[i] = from[i * 4u];
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) high[i] = from[32u + i * 4u];
    } else {
      MF_UNROLL
      for (u32 i = 0u; i < 8u; ++i) low[i] = join_words(from[i * 4u], from[i * 4u + 1u], at);
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        high[i] = join_words(from[32u + i * 4u], from[33u + i * 4u], at);
      }
    }
  }
  /// Codes of group `g` of the first or the second 64 columns of half `h`.
  MF_FN_MEMBER u32 codes(u32 h, u32 second, u32 g) const {
    return q6_k_codes(low[h * 4u + g], high[h * 2u + g % 2u], second, g / 2u);
  }
};

/// The scales of a lane's two blocks of 64 columns.
struct Q6KScales {
  GgmlScale v[8];

  /// `at`: where their 256 columns begin; `second`: 1 for the last two of these.
  MF_FN_MEMBER void load(MF_T t, u32 at, u32 second) {
    MF_SHARED(u32) from = MF_SHARED_AT(t, u32, (at & ~3u) + (192u + second * 8u));
    const u32 middle = from[1];
    const u32 words[2] = {join_words(from[0], middle, at), join_words(middle, from[2], at)};
    const f32 scale = shared_f16(t, at + 208u);
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) {
      v[i] = scale_of_byte(scale, words[i / 4u] >> (i % 4u * 8u), 32.0f);
    }
  }
};

/// As MmaPart::multiply(), of rows that begin at `above_at` and `below_at`; `last`: the last block
/// of the split.
///
/// Units multiply 16 rows with 8 columns at a time. A pair of columns is the 256s and the ones of
/// one block's activations, and zeros where others have theirs. Each pair has two blocks in turn,
/// so that the four lanes of a row end up with the sums of two blocks each.
MF_FN void multiply_q6_k(MF_T t, u32 above_at, u32 below_at, u32 last, bool wide, u32 block,
                         MmaOneShared shared, MF_SHARED(f32) to) {
  const u32 g = t.lane / 4u;
  const u32 own = t.lane & 3u;
  MF_SHARED(u32)
  x_at = MF_SHARED_AT(t, u32,
                      (shared.integers + (block + g / 2u * 2u) * kMmaBlockWords +
                       (g & 1u) * (kMmaBlockWords / 2u) + own) *
                          4u);
  u32 x[8];
  MF_UNROLL
  for (u32 i = 0u; i < 8u; ++i) x[i] = x_at[i / 4u * kMmaBlockWords + i % 4u * 4u];
  i32 sums[8][4];
  MF_UNROLL
  for (u32 i = 0u; i < 32u; ++i) sums[i / 4u][i % 4u] = 0;
  MF_UNROLL
  for (u32 half = 0u; half < 2u; ++half) {
    // Where columns end, the last block's codes meet activations of zero.
    const u32 skip = half != 0u && last >= 4u ? 210u : 0u;
    Q6KWords above;
    Q6KWords below;
    above.load(t, above_at + skip, wide);
    below.load(t, below_at + skip, wide);
    const u32 first = g / 2u == half * 2u ? ~0u : 0u;
    const u32 second = g / 2u == half * 2u + 1u ? ~0u : 0u;
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) {
      matrix_multiply_add_bytes(t, sums[i], above.codes(0u, i / 4u, i % 4u),
                                below.codes(0u, i / 4u, i % 4u), above.codes(1u, i / 4u, i % 4u),
                                below.codes(1u, i / 4u, i % 4u), x[i] & first, x[i] & second);
    }
  }
  const u32 skip = own >= 2u && last >= 4u ? 210u : 0u;
  MF_SHARED(f32)
  x_sums = MF_SHARED_AT(t, f32, (shared.sums + (block + own * 2u) * u32{kGgmlSumWords}) * 4u);
  MmaProducts parts;
  MF_UNROLL
  for (u32 r = 0u; r < 2u; ++r) {
    Q6KScales scales;
    scales.load(t, (r == 0u ? above_at : below_at) + skip, own & 1u);
    MF_UNROLL
    for (u32 j = 0u; j < 2u; ++j) {
      const F4 quarters = load4(x_sums + (j * u32{kGgmlSumWords} + u32{kGgmlSumQuarters}));
      f32 sum = 0.0f;
      MF_UNROLL
      for (u32 i = 0u; i < 4u; ++i) {
        const u32 k = j * 4u + i;
        sum =
            add_ggml_group(sum, sums[k][r * 2u], sums[k][r * 2u + 1u], scales.v[k], quarters.v[i]);
      }
      parts.v[r][j] = sum;
    }
  }
  store_mma_rows(t, parts, x_sums[kGgmlSumFactor], x_sums[kGgmlSumWords + kGgmlSumFactor], to);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
