// GGML's types as bytes for matrix units: from blocks in shared memory the codes of 16 columns at a
// time, and scales and biases of 64. w = scale * code + bias; scales and biases are exact in f32.
// quant/formats/ggml_*_formats.cc say how blocks lie.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_params.h"
#include "backend/gpu/kernels/matmul/shared_words.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

struct GgmlScale {
  f32 scale;
  f32 bias;
};

/// Bits `shift` and more of each byte.
MF_FN u32 bits_of_bytes(u32 word, u32 shift, u32 mask) {
  return word >> shift & mask * 0x01010101u;
}

/// Two bits each of four numbers become bytes.
MF_FN u32 bytes_of_pairs(u32 pairs) {
  const u32 two = (pairs | pairs << 12u) & 0x000f000fu;
  return (two | two << 6u) & 0x03030303u;
}

/// Both halves of a piece.
template <class Type>
MF_FN W4 both_pairs(MF_T t, u32 at, u32 block, u32 piece) {
  const W2 first = Type::low_pair(t, at, block, piece, 0u);
  const W2 second = Type::low_pair(t, at, block, piece, 1u);
  const W4 codes = {{first.v[0], first.v[1], second.v[0], second.v[1]}};
  return codes;
}

/// How a type gives 64 columns ("block", of 8 in a split) in four parts of 16 codes. `at` is where
/// the row's split begins.
/// - low(), high(): pieces of 16 bytes, kLow and kHigh of them; low_piece() and high_piece() say
///   which one a part needs;
/// - low_pair(), high_pair(): the words of half `half` of a piece alone;
/// - code(): four codes of a part from a word of each of its pieces;
/// - scales(): kScales of them, of 16, 32 or 64 columns each;
/// - kOuter: 1 where a matrix may have a factor;
/// - with_outer(): scale and bias times this factor;
/// - whole(): the sum of products of codes, from that of what came for them and from the sum of
///   the activations;
/// - kLooksUp: 1 where halves() has the codes of the low halves of four bytes, then of the high
///   ones. There is no code() then: those of an octet are low halves, or high ones where
///   odd_halves(octet) is 1.
template <u32 TYPE>
struct GgmlCodes;

/// Types without other bits.
template <u32 LOW, u32 SCALES>
struct GgmlLowBits {
  enum : u32 { kLow = LOW, kHigh = 0, kScales = SCALES, kOuter = 0, kLooksUp = 0 };
  static MF_FN_MEMBER i32 whole(i32 products, f32) { return products; }
  static MF_FN_MEMBER GgmlScale with_outer(GgmlScale own, f32 outer) {
    const GgmlScale scaled = {own.scale * outer, own.bias * outer};
    return scaled;
  }
  static MF_FN_MEMBER u32 high_piece(u32) { return 0u; }
  static MF_FN_MEMBER W4 high(MF_T, u32, u32, u32) {
    const W4 nothing = {{0u, 0u, 0u, 0u}};
    return nothing;
  }
  static MF_FN_MEMBER W2 high_pair(MF_T, u32, u32, u32, u32) {
    const W2 nothing = {{0u, 0u}};
    return nothing;
  }
};

MF_FN GgmlScale scale_around(f32 scale, f32 zero) {
  const GgmlScale own = {scale, scale * -zero};
  return own;
}

// --- Blocks of 32 numbers: two in 64 columns ---

/// Codes of 4 bits in 16 bytes: the low halves first.
template <u32 BYTES, u32 CODES_AT>
struct GgmlNibbles : GgmlLowBits<2u, 2u> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block, u32 which) {
    return at + (block * 2u + which) * BYTES;
  }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part / 2u; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_piece(t, begin(at, block, piece) + CODES_AT);
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 from = begin(at, block, piece) + (CODES_AT + half * 8u);
    return BYTES % 2u == 0u ? shared_pair(t, from) : shared_any_pair(t, from);
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32 part) {
    return bits_of_bytes(low, part % 2u * 4u, 15u);
  }
  /// Words of half `half` of a block: of four columns, and those 16 behind them.
  typedef SharedWords Words;
  static MF_FN_MEMBER u32 words_begin(u32 block, u32 half) {
    return begin(0u, block, half) + CODES_AT;
  }
  static MF_FN_MEMBER void scales_around(MF_T t, u32 at, u32 block, f32 zero,
                                         MF_LOCAL(GgmlScale) to) {
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      to[i] = scale_around(shared_f16(t, begin(at, block, i)), zero);
    }
  }
  static MF_FN_MEMBER void scales_and_mins(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      to[i].scale = shared_f16(t, begin(at, block, i));
      to[i].bias = shared_f16(t, begin(at, block, i) + 2u);
    }
  }
};
template <>
struct GgmlCodes<kGgml_q4_0> : GgmlNibbles<18u, 2u> {
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    scales_around(t, at, block, 8.0f, to);
  }
};
/// Rows begin at multiples of 4, as both blocks of 64 columns then do: words in place of halves.
struct GgmlWideQ40 : GgmlCodes<kGgml_q4_0> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    MF_SHARED(u32) from = MF_SHARED_AT(t, u32, at + block * 36u) + half * 2u;
    if (piece != 0u) {
      const W2 pair = {{from[5], from[6]}};
      return pair;
    }
    const u32 middle = from[1];
    const W2 pair = {{join_words(from[0], middle, 2u), join_words(middle, from[2], 2u)}};
    return pair;
  }
  typedef SharedWideWords Words;
};
template <>
struct GgmlCodes<kGgml_q4_1> : GgmlNibbles<20u, 4u> {
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    scales_and_mins(t, at, block, to);
  }
};

/// The fifth bits of 32 codes are a word before the others.
template <u32 BYTES, u32 CODES_AT>
struct GgmlFiveBits : GgmlNibbles<BYTES, CODES_AT> {
  enum : u32 { kHigh = 2 };
  static MF_FN_MEMBER u32 high_piece(u32 part) { return part / 2u; }
  static MF_FN_MEMBER u32 bits(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_u32(t, GgmlNibbles<BYTES, CODES_AT>::begin(at, block, piece) + (CODES_AT - 4u));
  }
  static MF_FN_MEMBER W4 high(MF_T t, u32 at, u32 block, u32 piece) {
    const u32 own = bits(t, at, block, piece);
    const W4 words = {{own, own >> 4u, own >> 8u, own >> 12u}};
    return words;
  }
  static MF_FN_MEMBER W2 high_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 own = bits(t, at, block, piece) >> (half * 8u);
    const W2 words = {{own, own >> 4u}};
    return words;
  }
  static MF_FN_MEMBER u32 code(u32 low, u32 high, u32, u32 part) {
    // Bit i of four becomes bit 4 of byte i.
    const u32 fifth = (high >> (part % 2u * 16u) & 15u) * 0x00204081u & 0x01010101u;
    return bits_of_bytes(low, part % 2u * 4u, 15u) | fifth << 4u;
  }
};
template <>
struct GgmlCodes<kGgml_q5_0> : GgmlFiveBits<22u, 6u> {
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    scales_around(t, at, block, 16.0f, to);
  }
};
template <>
struct GgmlCodes<kGgml_q5_1> : GgmlFiveBits<24u, 8u> {
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    scales_and_mins(t, at, block, to);
  }
};

template <>
struct GgmlCodes<kGgml_q8_0> : GgmlLowBits<4u, 2u> {
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_piece(t, at + (block * 2u + piece / 2u) * 34u + (2u + piece % 2u * 16u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return shared_pair(t,
                       at + (block * 2u + piece / 2u) * 34u + (2u + piece % 2u * 16u + half * 8u));
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32) { return low ^ 0x80808080u; }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      to[i] = scale_around(shared_f16(t, at + (block * 2u + i) * 34u), 128.0f);
    }
  }
};

/// 128 more than the numbers of IQ4.
struct GgmlIq4Table {
  enum : u32 { kLooksUp = 1 };
  static MF_FN_MEMBER W2 halves(u32 bytes) {
    const W4 numbers = {{0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u}};
    return look_up_halves(numbers, bytes);
  }
};
/// 16 more than twice the numbers of e2m1: bytes neither carry nor borrow.
struct GgmlE2m1Table {
  enum : u32 { kLooksUp = 1 };
  static MF_FN_MEMBER W2 halves(u32 bytes) {
    const W2 sizes = {{0x03020100u, 0x0c080604u}};
    const u32 negated = bytes ^ 0x88888888u;
    u32 in_order[2];
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      in_order[i] = look_up_positive(sizes, bytes >> (16u * i)) + 0x10101010u -
                    look_up_positive(sizes, negated >> (16u * i));
    }
    const W2 codes = {{even_bytes(in_order[0], in_order[1]), odd_bytes(in_order[0], in_order[1])}};
    return codes;
  }
};
/// Rows of 16 bytes of which the low halves are 16 columns, and the high ones the next.
template <class Table, class Rows>
struct GgmlLooksUp : Rows, Table {
  enum : u32 { kLooksUp = Table::kLooksUp };
  static MF_FN_MEMBER u32 odd_halves(u32 octet) { return octet / 2u % 2u; }
};
template <>
struct GgmlCodes<kGgml_iq4_nl> : GgmlLooksUp<GgmlIq4Table, GgmlNibbles<18u, 2u>> {
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    scales_around(t, at, block, 128.0f, to);
  }
};

/// Scales are halves of powers of two, of which the two smallest are below the normal numbers.
template <>
struct GgmlCodes<kGgml_mxfp4_gguf> : GgmlLooksUp<GgmlE2m1Table, GgmlNibbles<17u, 1u>> {
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      const u32 scale = shared_byte(t, begin(at, block, i));
      to[i] =
          scale_around(as_float(scale < 2u ? 0x00200000u << scale : (scale - 1u) << 23u), 16.0f);
    }
  }
};

/// A block of 64: four scales, of e4m3, then eight bytes for 16 columns each, the low halves first.
template <>
struct GgmlCodes<kGgml_nvfp4_gguf> : GgmlLooksUp<GgmlE2m1Table, GgmlLowBits<4u, 4u>> {
  enum : u32 { kOuter = 1 };
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block * 36u; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER u32 odd_halves(u32 octet) { return octet % 2u; }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32) {
    return shared_pair(t, begin(at, block) + (4u + piece * 8u));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const W2 bytes = low_pair(t, at, block, piece, 0u);
    const W4 twice = {{bytes.v[0], bytes.v[1], bytes.v[0], bytes.v[1]}};
    return twice;
  }
  /// Halves that are 256 times too small; 128 times them are halves of scales.
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 bytes = shared_u32(t, begin(at, block));
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 byte = bytes >> (8u * i) & 0xffu;
      const f32 half = f16_to_float(static_cast<u16>((byte & 0x7fu) << 7u)) * 128.0f;
      to[i] = scale_around(byte == 0x7fu ? 0.0f : half, 16.0f);
    }
  }
};

// --- Blocks of 256 numbers: a quarter is 64 columns ---

/// Codes of 4 bits: 32 bytes hold two times 32 numbers. Scales and minima of 6 bits each. All of it
/// lies in pieces; WIDE: the row begins at a multiple of 16.
template <u32 BYTES, u32 CODES_AT, bool WIDE>
struct GgmlSixBitScales : GgmlLowBits<2u, 2u> {
  static MF_FN_MEMBER W4 piece_at(MF_T t, u32 at) {
    return WIDE ? load4(MF_SHARED_AT(t, u32, at)) : shared_piece(t, at);
  }
  static MF_FN_MEMBER W2 pair_at(MF_T t, u32 at) {
    return WIDE ? load2(MF_SHARED_AT(t, u32, at)) : shared_pair(t, at);
  }
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 4u * BYTES; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part % 2u; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return piece_at(t, begin(at, block) + (CODES_AT + block % 4u * 32u + piece * 16u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return pair_at(t, begin(at, block) + (CODES_AT + block % 4u * 32u + piece * 16u + half * 8u));
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32 part) {
    return bits_of_bytes(low, part / 2u * 4u, 15u);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const W4 head = piece_at(t, begin(at, block));  // two f16, then 12 bytes
    const bool upper = block % 4u >= 2u;
    const u32 own = head.v[3];
    const u32 scales = upper ? (own & 0x0f0f0f0fu) | (head.v[1] >> 2u & 0x30303030u) : head.v[1];
    const u32 least =
        upper ? (own >> 4u & 0x0f0f0f0fu) | (head.v[2] >> 2u & 0x30303030u) : head.v[2];
    const f32 scale = f16_half(head.v[0], 0u);
    const f32 bias = -f16_half(head.v[0], 1u);
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      const u32 shift = (block % 2u * 2u + i) * 8u;
      to[i].scale = scale * static_cast<f32>(scales >> shift & 63u);
      to[i].bias = bias * static_cast<f32>(least >> shift & 63u);
    }
  }
};
template <>
struct GgmlCodes<kGgml_q4_k> : GgmlSixBitScales<144u, 16u, false> {};
struct GgmlWideQ4K : GgmlSixBitScales<144u, 16u, true> {};

/// Codes of the last 32 columns are 16 times what they are, and their scales a sixteenth: sums
/// round as they do.
struct GgmlHighQ4K : GgmlWideQ4K {
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32 part) {
    return low & (part / 2u == 0u ? 0x0f0f0f0fu : 0xf0f0f0f0u);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    GgmlWideQ4K::scales(t, at, block, to);
    to[1].scale *= 0.0625f;
  }
};

template <bool WIDE>
struct GgmlQ5K : GgmlSixBitScales<176u, 48u, WIDE> {
  typedef GgmlSixBitScales<176u, 48u, WIDE> Base;
  enum : u32 { kHigh = 2 };
  static MF_FN_MEMBER u32 high_piece(u32 part) { return part % 2u; }
  static MF_FN_MEMBER W4 high(MF_T t, u32 at, u32 block, u32 piece) {
    return Base::piece_at(t, Base::begin(at, block) + (16u + piece * 16u));
  }
  static MF_FN_MEMBER W2 high_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return Base::pair_at(t, Base::begin(at, block) + (16u + piece * 16u + half * 8u));
  }
  static MF_FN_MEMBER u32 code(u32 low, u32 high, u32 block, u32 part) {
    return bits_of_bytes(low, part / 2u * 4u, 15u) |
           bits_of_bytes(high, block % 4u * 2u + part / 2u, 1u) << 4u;
  }
};
template <>
struct GgmlCodes<kGgml_q5_k> : GgmlQ5K<false> {};

/// A scale times the signed byte that `byte` ends with, for 16 columns each.
MF_FN GgmlScale scale_of_byte(f32 scale, u32 byte, f32 zero) {
  const i32 number = static_cast<i32>(byte << 24u) >> 24;
  return scale_around(scale * static_cast<f32>(number), zero);
}

template <>
struct GgmlCodes<kGgml_q6_k> : GgmlLowBits<4u, 4u> {
  enum : u32 { kHigh = 2 };
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 4u * 210u; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER u32 high_piece(u32 part) { return part % 2u; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_piece(t, begin(at, block) + (block % 4u / 2u * 64u + piece * 16u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return shared_pair(t, begin(at, block) + (block % 4u / 2u * 64u + piece * 16u + half * 8u));
  }
  static MF_FN_MEMBER W4 high(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_piece(t, begin(at, block) + (128u + block % 4u / 2u * 32u + piece * 16u));
  }
  static MF_FN_MEMBER W2 high_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return shared_pair(t,
                       begin(at, block) + (128u + block % 4u / 2u * 32u + piece * 16u + half * 8u));
  }
  static MF_FN_MEMBER u32 code(u32 low, u32 high, u32 block, u32 part) {
    return bits_of_bytes(low, block % 2u * 4u, 15u) |
           bits_of_bytes(high, block % 2u * 4u + part / 2u * 2u, 3u) << 4u;
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    const f32 scale = shared_f16(t, from + 208u);
    const u32 bytes = shared_u32(t, from + (192u + block % 4u * 4u));
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) to[i] = scale_of_byte(scale, bytes >> (8u * i), 32.0f);
  }
};

/// Codes of 2 bits: 32 bytes hold four times 32 numbers.
template <u32 BYTES, u32 CODES_AT>
struct GgmlTwoBits : GgmlLowBits<2u, 4u> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 4u * BYTES; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part % 2u; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_piece(t, begin(at, block) + (CODES_AT + block % 4u / 2u * 32u + piece * 16u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return shared_pair(
        t, begin(at, block) + (CODES_AT + block % 4u / 2u * 32u + piece * 16u + half * 8u));
  }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32 block, u32 part) {
    return bits_of_bytes(low, block % 2u * 4u + part / 2u * 2u, 3u);
  }
};
template <>
struct GgmlCodes<kGgml_q2_k> : GgmlTwoBits<84u, 16u> {
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    const f32 scale = shared_f16(t, from + 80u);
    const f32 bias = -shared_f16(t, from + 82u);
    const u32 bytes = shared_u32(t, from + block % 4u * 4u);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      to[i].scale = scale * static_cast<f32>(bytes >> (8u * i) & 15u);
      to[i].bias = bias * static_cast<f32>(bytes >> (8u * i + 4u) & 15u);
    }
  }
};
template <>
struct GgmlCodes<kGgml_q3_k> : GgmlTwoBits<110u, 32u> {
  enum : u32 { kHigh = 2 };
  static MF_FN_MEMBER u32 high_piece(u32 part) { return part % 2u; }
  static MF_FN_MEMBER W4 high(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_piece(t, begin(at, block) + piece * 16u);
  }
  static MF_FN_MEMBER W2 high_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return shared_pair(t, begin(at, block) + (piece * 16u + half * 8u));
  }
  static MF_FN_MEMBER u32 code(u32 low, u32 high, u32 block, u32 part) {
    return bits_of_bytes(low, block % 2u * 4u + part / 2u * 2u, 3u) |
           bits_of_bytes(high, block % 4u * 2u + part / 2u, 1u) << 2u;
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block) + 96u;
    const u32 quarter = block % 4u;
    const f32 scale = shared_f16(t, from + 12u);
    const u32 low = shared_u32(t, from + quarter % 2u * 4u) >> (quarter / 2u * 4u);
    const u32 high = shared_u32(t, from + 8u) >> (quarter * 2u);
    const u32 bytes = (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4u;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      // From 0 to 63, 32 more than they are.
      to[i] = scale_of_byte(scale, (bytes >> (8u * i) & 63u) - 32u, 4.0f);
    }
  }
};

template <>
struct GgmlCodes<kGgml_iq4_xs> : GgmlLooksUp<GgmlIq4Table, GgmlLowBits<2u, 2u>> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 4u * 136u; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part / 2u; }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return shared_piece(t, begin(at, block) + (8u + block % 4u * 32u + piece * 16u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    return shared_pair(t, begin(at, block) + (8u + block % 4u * 32u + piece * 16u + half * 8u));
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    const f32 scale = shared_f16(t, from);
    const u32 high = shared_half(t, from + 2u) >> (block % 4u * 4u);
    const u32 low = shared_byte(t, from + (4u + block % 4u));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      const u32 own = (low >> (4u * i) & 15u) | (high >> (2u * i) & 3u) << 4u;
      to[i] = scale_of_byte(scale, own - 32u, 128.0f);
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
