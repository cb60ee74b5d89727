// The tokens of products of a few of them: columns of units, and where their integers lie.
#pragma once

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_product.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// TOKENS tokens in columns of units, eight at a time: a lane multiplies those of column lane / 4,
/// and has products of columns (lane & 3) * 2 and the next one.
template <u32 TOKENS>
struct MmaFewShape {
  enum : u32 {
    kParts = TOKENS < 8u ? 1u : 2u,  // of a column: 256s or ones, or these, then those
    kTiles = TOKENS < 8u ? 1u : TOKENS / 8u,
    kOwn = TOKENS < 8u ? 1u : 2u,  // tokens whose products a lane has
    kAll = kTiles * kOwn,
  };
  /// The token in the lane's column of tile `n`, and token `j` of those whose products it has.
  static MF_FN_MEMBER u32 multiplied(MF_T t, u32 n) {
    return TOKENS < 8u ? t.lane / 8u : n * 8u + t.lane / 4u;
  }
  static MF_FN_MEMBER u32 own(MF_T t, u32 n, u32 j) { return n * 8u + (t.lane & 3u) * kOwn + j; }
  /// Where the lane's words of a block begin, of part `part`.
  static MF_FN_MEMBER u32 words(MF_T t, u32 part) {
    const u32 ones = TOKENS < 8u ? t.lane / 4u & 1u : part;
    return (t.lane & 3u) * 4u + ones * (kMmaBlockWords / 2u);
  }
};

/// TOKENS rows of x as integers in memory, in the order of lanes. `numbers` says which row of x a
/// token is.
template <u32 TOKENS>
struct MmaFewTokens {
  typedef MmaFewShape<TOKENS> Shape;
  enum : u32 { kInMemory = 1u };
  MF_GLOBAL(const u32) integers;
  MF_GLOBAL(const u32) sums;
  u32 at[Shape::kTiles];     // words of the lane's part of a token
  u32 sums_at[Shape::kAll];  // and of the sums of the tokens whose products it has

  /// `sum_words`: of a block.
  template <class Numbers>
  MF_FN_MEMBER void begin(MF_T t, u32 cols, u32 sum_words, MF_LOCAL(const Numbers) numbers) {
    MF_UNROLL
    for (u32 n = 0u; n < Shape::kTiles; ++n) {
      at[n] = numbers->row(Shape::multiplied(t, n)) * (cols / 2u) + Shape::words(t, 0u);
      MF_UNROLL
      for (u32 j = 0u; j < Shape::kOwn; ++j) {
        sums_at[n * Shape::kOwn + j] =
            numbers->row(Shape::own(t, n, j)) * (cols / kMmaBlock * sum_words);
      }
    }
  }
  /// The lane's part `part` of a block, of tile `n`.
  MF_FN_MEMBER W4 integers_of(MF_T, u32 n, u32 part, u32 block) const {
    return load4(integers + (at[n] + block * kMmaBlockWords + part * (kMmaBlockWords / 2u)));
  }
  /// Sum and factor of a block of the lane's token `j`, or what kGgmlSumWords says.
  MF_FN_MEMBER W2 two_sums(MF_T, u32 n, u32 j, u32 block) const {
    return load2(sums + (sums_at[n * Shape::kOwn + j] + block * 2u));
  }
  MF_FN_MEMBER W4 four_sums(MF_T, u32 n, u32 j, u32 block, u32 from) const {
    return load4(sums + (sums_at[n * Shape::kOwn + j] + block * u32{kGgmlSumWords} + from));
  }
};

/// The same in shared memory, where a group makes them of the rows of x in memory.
template <u32 TOKENS>
struct MmaFewStaged {
  typedef MmaFewShape<TOKENS> Shape;
  enum : u32 { kInMemory = 0u };
  u32 at;      // words of shared memory
  u32 stride;  // from a token to the next
  u32 sums;    // where the sums of a token begin within it
  u32 last;    // token

  MF_FN_MEMBER u32 of(u32 token) const { return at + (token < last ? token : last) * stride; }
  MF_FN_MEMBER W4 integers_of(MF_T t, u32 n, u32 part, u32 block) const {
    const u32 own = of(Shape::multiplied(t, n)) + block * kMmaBlockWords + Shape::words(t, part);
    return load4(MF_SHARED_AT(t, u32, own * 4u));
  }
  MF_FN_MEMBER W2 two_sums(MF_T t, u32 n, u32 j, u32 block) const {
    const u32 own = of(Shape::own(t, n, j)) + sums + block * 2u;
    return load2(MF_SHARED_AT(t, u32, own * 4u));
  }

  /// Makes them, by all threads. A barrier must follow.
  template <class Numbers>
  MF_FN_MEMBER void stage(MF_T t, MF_GLOBAL(const f32) x, u64 x_stride, u32 cols, u32 wide,
                          MF_LOCAL(const Numbers) numbers) const {
    const u32 octets = cols / 8u;
    const u32 all = (last + 1u) * octets;
    MF_ROLLED
    for (u32 base = t.simd * 32u; base < all; base += t.threads) {
      const u32 i = base + t.lane;
      const u32 token = i < all ? i / octets : last;
      const u32 o = i - token * octets;
      f32 values[8];
      load_octet(values, x + numbers->row(token) * x_stride, o * 8u, i < all ? cols : 0u, wide);
      const UnitFactor factor = unit_factor(lanes_max<8u>(t, largest_bits<8u>(values)));
      const MmaOctet octet = mma_octet(values, factor.into, false);
      const i32 sum = add_lane(t, add_lane(t, add_lane(t, octet.sum, 1u), 2u), 4u);
      if (i >= all) continue;
      MF_SHARED(u32)
      to = MF_SHARED_AT(t, u32, (of(token) + o / 8u * kMmaBlockWords + o % 8u * 2u) * 4u);
      store2(to, octet.high);
      store2(to + kMmaBlockWords / 2u, octet.low);
      if (o % 8u != 0u) continue;
      MF_SHARED(f32) to_sums = MF_SHARED_AT(t, f32, (of(token) + sums + o / 8u * 2u) * 4u);
      to_sums[0] = static_cast<f32>(sum);
      to_sums[1] = factor.out_of;
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
