// GgmlCodes of types of one and two bits: a block has one scale, which is that of all 64 columns.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The one scale of a block at `from`, around a code of 1.
MF_FN GgmlScale scale_around_one(MF_T t, u32 from) {
  return scale_around(shared_f16(t, from), 1.0f);
}

/// Q2_0: a byte has the codes of four columns. COUNT blocks of 64 columns have a scale.
template <u32 BYTES, u32 COUNT>
struct GgmlPairsOfBits : GgmlLowBits<4u, 1u> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / COUNT * BYTES; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const u32 bytes = shared_u32(t, begin(at, block) + (2u + block % COUNT * 16u + piece * 4u));
    const W4 words = {{bytes & 0xffu, bytes >> 8u & 0xffu, bytes >> 16u & 0xffu, bytes >> 24u}};
    return words;
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 bytes =
        shared_half(t, begin(at, block) + (2u + block % COUNT * 16u + piece * 4u + half * 2u));
    const W2 words = {{bytes & 0xffu, bytes >> 8u}};
    return words;
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32) { return bytes_of_pairs(low); }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    to[0] = scale_around_one(t, begin(at, block));
  }
};
template <>
struct GgmlCodes<kGgml_q2_0> : GgmlPairsOfBits<18u, 1u> {};
template <>
struct GgmlCodes<kGgml_q2_0_128> : GgmlPairsOfBits<34u, 2u> {};

/// A bit is a code of 0 or 2.
template <>
struct GgmlCodes<kGgml_q1_0> : GgmlLowBits<4u, 1u> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 2u * 18u; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const u32 bits = shared_half(t, begin(at, block) + (2u + block % 2u * 8u + piece * 2u));
    const W4 words = {{bits & 15u, bits >> 4u & 15u, bits >> 8u & 15u, bits >> 12u}};
    return words;
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 bits = shared_byte(t, begin(at, block) + (2u + block % 2u * 8u + piece * 2u + half));
    const W2 words = {{bits & 15u, bits >> 4u}};
    return words;
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32) {
    // Bit i of four becomes bit 1 of byte i.
    return low * 0x00408102u & 0x02020202u;
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    to[0] = scale_around_one(t, begin(at, block));
  }
};

template <>
struct GgmlCodes<kGgml_tq2_0> : GgmlTwoBits<66u, 0u> {
  enum : u32 { kScales = 1 };
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    to[0] = scale_around_one(t, begin(at, block) + 64u);
  }
};

/// TQ1_0: a byte has five digits to the base of 3, as a fraction of 256. 32 bytes have the first
/// 160 numbers, 16 bytes the next 80, and four bytes have four digits each.
template <>
struct GgmlCodes<kGgml_tq1_0> : GgmlLowBits<4u, 1u> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 4u * 54u; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  /// Digit `n` of each of two bytes, 16 bits apart.
  static MF_FN_MEMBER u32 digit(u32 two, u32 n) {
    const u32 times = n < 4u ? 0x1b090301u >> (8u * n) & 0xffu : 81u;
    return (two * times & 0x00ff00ffu) * 3u >> 8u & 0x00030003u;
  }
  static MF_FN_MEMBER u32 digits(u32 four, u32 n) {
    return digit(four & 0x00ff00ffu, n) | digit(four >> 8u & 0x00ff00ffu, n) << 8u;
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 from = begin(at, block);
    const u32 sixteen = block % 4u * 4u + piece;
    if (sixteen == 15u) {
      const u32 bytes = shared_u32(t, from + 48u);
      const W2 last = {{digits(bytes, half * 2u), digits(bytes, half * 2u + 1u)}};
      return last;
    }
    const u32 own = sixteen < 10u ? sixteen % 2u * 16u : 32u;
    const u32 n = sixteen < 10u ? sixteen / 2u : sixteen - 10u;
    const W2 bytes = shared_pair(t, from + own + half * 8u);
    const W2 words = {{digits(bytes.v[0], n), digits(bytes.v[1], n)}};
    return words;
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32) { return low; }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    to[0] = scale_around_one(t, begin(at, block) + 52u);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
