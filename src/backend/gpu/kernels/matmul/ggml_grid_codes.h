// GgmlCodes of types whose codes choose rows of a grid: IQ1, IQ2 and IQ3. A code of IQ2 and IQ3 is
// 64 and the number with its sign, as it is on CPUs; one of IQ1 is 16 and eight times the number.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_grids.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Bit i of eight becomes the third bit of 4-bit number i. Four bits behind them may be set.
MF_FN u32 spread_signs(u32 signs) {
  const u32 fours = signs * 0x1001u & 0x000f000fu;  // factors leave the unit of shifts to masks
  const u32 twos = fours * 0x41u & 0x03030303u;
  return twos * 0x24u & 0x44444444u;
}
/// Seven signs and an eighth one, which makes the number of those that are set even. Bits behind it
/// may be set.
MF_FN u32 with_even_sign(u32 seven) { return count_bits(seven) * 128u + seven; }
/// Signs of eight `i` of those that four times seven bits stand for.
MF_FN u32 even_signs(u32 word, u32 i) { return with_even_sign(word >> (7u * i) & 127u); }

/// The levels of eight numbers of IQ2, 4 bits each.
MF_FN u32 spread_levels(u32 entry) {
  const u32 bytes = (entry | entry << 8u) & 0x00ff00ffu;
  const u32 fours = (bytes | bytes << 4u) & 0x0f0f0f0fu;
  return (fours | fours << 2u) & 0x33333333u;
}
/// Four numbers of IQ3, from the table of what its levels stand for.
MF_FN u32 grid_numbers(W2 table, u32 entry) {
  const u32 pairs = (entry & 0x3fu) | (entry << 2u & 0x3f00u);
  return look_up_eight(table, (pairs & 0x0707u) | (pairs << 1u & 0x7070u));
}
/// Leaves the grid of a type that has one in shared memory, as look-ups want it, for what comes
/// after a barrier: neighbours' look-ups in device memory are a line of the cache each.
MF_FN void place_grid(MF_T t, u32 type) {
  MF_SHARED(u32) to = MF_SHARED_AT(t, u32, kGgmlGrid * 4u);
  const W2 of_xxs = {{0x1c140c04u, 0x3e342c24u}};
  const W2 of_s = {{0x07050301u, 0x0f0d0b09u}};
  if (type == kGgml_iq2_xxs) {
    for (u32 i = t.index; i < 256u; i += t.threads) to[i] = spread_levels(kIq2XxsGrid[i]);
  } else if (type == kGgml_iq2_xs) {
    for (u32 i = t.index; i < 512u; i += t.threads) to[i] = spread_levels(kIq2XsGrid[i]);
  } else if (type == kGgml_iq2_s) {
    for (u32 i = t.index; i < 1024u; i += t.threads) to[i] = spread_levels(kIq2SGrid[i]);
  } else if (type == kGgml_iq3_xxs) {
    for (u32 i = t.index; i < 256u; i += t.threads) to[i] = grid_numbers(of_xxs, kIq3XxsGrid[i]);
  } else if (type == kGgml_iq3_s) {
    for (u32 i = t.index; i < 512u; i += t.threads) to[i] = grid_numbers(of_s, kIq3SGrid[i]);
  } else if (type == kGgml_iq1_s || type == kGgml_iq1_m) {
    for (u32 i = t.index; i < 1024u; i += t.threads) {
      to[i] = static_cast<u32>(kIq1Grid[2u * i]) | static_cast<u32>(kIq1Grid[2u * i + 1u]) << 16u;
    }
  }
}
/// An entry of the grid that place_grid() left, by its place or by four times that.
MF_FN u32 grid_entry(MF_T t, u32 i) { return MF_SHARED_AT(t, u32, (kGgmlGrid + i) * 4u)[0]; }
MF_FN u32 grid_at(MF_T t, u32 bytes) { return MF_SHARED_AT(t, u32, kGgmlGrid * 4u + bytes)[0]; }

/// The codes of IQ2: levels of an entry stand for 8, 25 and 43.
struct GgmlIq2Levels {
  static MF_FN_MEMBER W2 table(MF_T) {
    const W2 codes = {{0x406b5948u, 0x40152738u}};
    return codes;
  }
};
/// Eight of them.
template <class Levels>
MF_FN W2 iq2_codes(MF_T t, u32 entry, u32 signs) {
  const W2 table = Levels::table(t);
  const u32 numbers = spread_signs(signs) | entry;
  const W2 codes = {{look_up_positive(table, numbers), look_up_positive(table, numbers >> 16u)}};
  return codes;
}

/// 255 for each of the first four signs that is set, and for each of the next four.
MF_FN u32 mask_of_signs(u32 signs) { return signs_of_bytes((signs & 15u) * 0x10204080u); }
MF_FN u32 mask_of_next_signs(u32 signs) { return signs_of_bytes((signs & 0xf0u) * 0x01020408u); }
/// Four codes of IQ3: 64 + number, or 255 - number + 64 - 255.
MF_FN u32 iq3_four(u32 entry, u32 mask) { return (entry ^ mask) + 0x40404040u - mask; }
MF_FN W2 iq3_codes(u32 first, u32 second, u32 signs) {
  const W2 codes = {
      {iq3_four(first, mask_of_signs(signs)), iq3_four(second, mask_of_next_signs(signs))}};
  return codes;
}

/// The codes of a part come ready, as its piece.
template <u32 BYTES, u32 SCALES>
struct GgmlGridRows : GgmlLowBits<4u, SCALES> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 4u * BYTES; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32) { return low; }
  /// d * (0.5 + code) / 4
  static MF_FN_MEMBER GgmlScale quarter_scale(f32 scale, u32 code) {
    return scale_around(scale * mf_fma(static_cast<f32>(code), 0.25f, 0.125f), 64.0f);
  }
  /// Four scales of 4 bits each at `from`.
  static MF_FN_MEMBER void quarter_scales(MF_T t, f32 scale, u32 from, MF_LOCAL(GgmlScale) to) {
    const u32 codes = shared_half(t, from);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) to[i] = quarter_scale(scale, codes >> (4u * i) & 15u);
  }
};

template <class Levels>
struct GgmlIq2Xxs : GgmlGridRows<66u, 2u> {
  /// The signs and the scale of 32 columns, behind their four places in the grid.
  static MF_FN_MEMBER u32 word(MF_T t, u32 at, u32 block, u32 half) {
    return shared_u32(t, begin(at, block) + (6u + (block % 4u * 2u + half) * 8u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 eight = piece % 2u * 2u + half;
    const u32 place =
        shared_byte(t, begin(at, block) + (2u + block % 4u * 16u + piece / 2u * 8u + eight));
    return iq2_codes<Levels>(t, grid_entry(t, place),
                             even_signs(word(t, at, block, piece / 2u), eight));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlIq2Xxs>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const f32 scale = shared_f16(t, begin(at, block));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) to[i] = quarter_scale(scale, word(t, at, block, i) >> 28u);
  }
};
template <>
struct GgmlCodes<kGgml_iq2_xxs> : GgmlIq2Xxs<GgmlIq2Levels> {};

template <class Levels>
struct GgmlIq2Xs : GgmlGridRows<74u, 4u> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 own =
        shared_half(t, begin(at, block) + (2u + block % 4u * 16u + piece * 4u + half * 2u));
    return iq2_codes<Levels>(t, grid_at(t, own << 2u & 0x7fcu), with_even_sign(own >> 9u));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlIq2Xs>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    quarter_scales(t, shared_f16(t, from), from + (66u + block % 4u * 2u), to);
  }
};
template <>
struct GgmlCodes<kGgml_iq2_xs> : GgmlIq2Xs<GgmlIq2Levels> {};

template <class Levels>
struct GgmlIq2S : GgmlGridRows<82u, 4u> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 from = begin(at, block);
    const u32 eight = block % 4u * 8u + piece * 2u + half;
    const u32 upper = shared_byte(t, from + (66u + eight / 4u)) << 10u >> (eight % 4u * 2u);
    const u32 place = shared_byte(t, from + (2u + eight)) * 4u | (upper & 0xc00u);
    return iq2_codes<Levels>(t, grid_at(t, place), shared_byte(t, from + (34u + eight)));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlIq2S>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    quarter_scales(t, shared_f16(t, from), from + (74u + block % 4u * 2u), to);
  }
};
template <>
struct GgmlCodes<kGgml_iq2_s> : GgmlIq2S<GgmlIq2Levels> {};

template <>
struct GgmlCodes<kGgml_iq3_xxs> : GgmlGridRows<98u, 2u> {
  /// The signs and the scale of 32 columns.
  static MF_FN_MEMBER u32 word(MF_T t, u32 at, u32 block, u32 half) {
    return shared_u32(t, begin(at, block) + (66u + (block % 4u * 2u + half) * 4u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 places =
        shared_half(t, begin(at, block) + (2u + block % 4u * 16u + piece * 4u + half * 2u));
    return iq3_codes(grid_entry(t, places & 0xffu), grid_entry(t, places >> 8u),
                     even_signs(word(t, at, block, piece / 2u), piece % 2u * 2u + half));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const f32 scale = 2.0f * shared_f16(t, begin(at, block));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) to[i] = quarter_scale(scale, word(t, at, block, i) >> 28u);
  }
};

template <>
struct GgmlCodes<kGgml_iq3_s> : GgmlGridRows<110u, 2u> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 from = begin(at, block);
    const u32 eight = block % 4u * 8u + piece * 2u + half;
    const u32 places = shared_half(t, from + (2u + eight * 2u));
    const u32 upper = shared_byte(t, from + (66u + eight / 4u)) >> (eight % 4u * 2u);
    return iq3_codes(grid_entry(t, (places & 0xffu) | (upper & 1u) << 8u),
                     grid_entry(t, places >> 8u | (upper & 2u) << 7u),
                     shared_byte(t, from + (74u + eight)));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    const f32 scale = shared_f16(t, from);
    const u32 codes = shared_byte(t, from + (106u + block % 4u));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      to[i] = scale_around(scale * static_cast<f32>(2u * (codes >> (4u * i) & 15u) + 1u), 64.0f);
    }
  }
};

/// IQ1: levels are -1, 0 and 1, and an eighth is added to them, or subtracted where `down` is 1.
template <u32 BYTES, u32 SCALES>
struct GgmlThreeLevels : GgmlGridRows<BYTES, SCALES> {
  static MF_FN_MEMBER W2 eight_codes(MF_T t, u32 place, u32 down) {
    const W2 table = {{0x21191109u, 0x1f170f07u}};
    const u32 entry = shared_half(t, (kGgmlGrid * 4u) + place * 2u);
    const u32 numbers = spread_levels(entry) | down * 0x44444444u;
    const W2 codes = {{look_up_eight(table, numbers), look_up_eight(table, numbers >> 16u)}};
    return codes;
  }
  /// d / 8 * (2 code + 1), which is exact. A code begins at the second bit of `twice`.
  static MF_FN_MEMBER GgmlScale eighth_scale(f32 eighth, u32 twice) {
    return scale_around(eighth * static_cast<f32>((twice & 14u) | 1u), 16.0f);
  }
};

template <>
struct GgmlCodes<kGgml_iq1_s> : GgmlThreeLevels<50u, 2u> {
  /// Three more bits of four places, the scale and the sign of what is added.
  static MF_FN_MEMBER u32 word(MF_T t, u32 at, u32 block, u32 half) {
    return shared_half(t, begin(at, block) + (34u + (block % 4u * 2u + half) * 2u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 eight = piece % 2u * 2u + half;
    const u32 own = word(t, at, block, piece / 2u);
    const u32 place =
        shared_byte(t, begin(at, block) + (2u + block % 4u * 8u + piece / 2u * 4u + eight));
    return eight_codes(t, place | (own >> (3u * eight) & 7u) << 8u, own >> 15u);
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const f32 eighth = shared_f16(t, begin(at, block)) * 0.125f;
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) to[i] = eighth_scale(eighth, word(t, at, block, i) >> 11u);
  }
};

template <>
struct GgmlCodes<kGgml_iq1_m> : GgmlThreeLevels<56u, 4u> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 from = begin(at, block);
    const u32 sixteen = block % 4u * 4u + piece;
    const u32 own = shared_byte(t, from + (32u + sixteen)) >> (4u * half);
    const u32 place = shared_byte(t, from + (sixteen * 2u + half)) | (own & 7u) << 8u;
    return eight_codes(t, place, own >> 3u & 1u);
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  /// Four words of four scales of 3 bits; their upper bits are those of the block's.
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block) + 48u;
    u32 bits = 0u;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) bits |= (shared_half(t, from + 2u * i) >> 12u) << (4u * i);
    const f32 eighth = f16_to_float(static_cast<u16>(bits)) * 0.125f;
    const u32 codes = shared_half(t, from + block % 4u * 2u) * 2u;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) to[i] = eighth_scale(eighth, codes >> (3u * i));
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
