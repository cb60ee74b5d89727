// GgmlCodes of types whose codes choose rows of a grid: IQ1, IQ2 and IQ3. A code of IQ2 and IQ3 is
// 64 and the number with its sign, as it is on CPUs; one of IQ1 is 16 and eight times the number.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_grids.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Bit i of eight becomes the lowest bit of 4-bit number i.
MF_FN u32 spread_signs(u32 signs) {
  const u32 fours = (signs | signs << 12u) & 0x000f000fu;
  const u32 twos = (fours | fours << 6u) & 0x03030303u;
  return (twos | twos << 3u) & 0x11111111u;
}
/// Seven signs and an eighth one, which makes the number of those that are set even.
MF_FN u32 with_even_sign(u32 seven) {
  return seven | (0x6996u >> ((seven ^ seven >> 4u) & 15u) & 1u) << 7u;
}
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

/// Eight codes of IQ2: levels of an entry stand for 8, 25 and 43.
MF_FN W2 iq2_codes(u32 entry, u32 signs) {
  const W2 table = {{0x406b5948u, 0x40152738u}};
  const u32 numbers = entry | spread_signs(signs) << 2u;
  const W2 codes = {{look_up_eight(table, numbers), look_up_eight(table, numbers >> 16u)}};
  return codes;
}

/// Four codes of IQ3. Bytes neither carry nor borrow: 64 + number, or 127 - number + 64 - 127.
MF_FN u32 iq3_four(u32 entry, u32 signs) {
  const u32 mask = ((signs & 15u) * 0x00204081u & 0x01010101u) * 127u;
  return (entry ^ mask) + 0x40404040u - mask;
}
MF_FN W2 iq3_codes(u32 first, u32 second, u32 signs) {
  const W2 codes = {{iq3_four(first, signs), iq3_four(second, signs >> 4u)}};
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
    return scale_around(scale * ((0.5f + static_cast<f32>(code)) * 0.25f), 64.0f);
  }
  /// Four scales of 4 bits each at `from`.
  static MF_FN_MEMBER void quarter_scales(MF_T t, f32 scale, u32 from, MF_LOCAL(GgmlScale) to) {
    const u32 codes = shared_half(t, from);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) to[i] = quarter_scale(scale, codes >> (4u * i) & 15u);
  }
};

template <>
struct GgmlCodes<kGgml_iq2_xxs> : GgmlGridRows<66u, 2u> {
  /// The signs and the scale of 32 columns, behind their four places in the grid.
  static MF_FN_MEMBER u32 word(MF_T t, u32 at, u32 block, u32 half) {
    return shared_u32(t, begin(at, block) + (6u + (block % 4u * 2u + half) * 8u));
  }
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 eight = piece % 2u * 2u + half;
    const u32 place =
        shared_byte(t, begin(at, block) + (2u + block % 4u * 16u + piece / 2u * 8u + eight));
    return iq2_codes(grid_entry(t, place), even_signs(word(t, at, block, piece / 2u), eight));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const f32 scale = shared_f16(t, begin(at, block));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) to[i] = quarter_scale(scale, word(t, at, block, i) >> 28u);
  }
};

template <>
struct GgmlCodes<kGgml_iq2_xs> : GgmlGridRows<74u, 4u> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 own =
        shared_half(t, begin(at, block) + (2u + block % 4u * 16u + piece * 4u + half * 2u));
    return iq2_codes(grid_entry(t, own & 511u), with_even_sign(own >> 9u));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    quarter_scales(t, shared_f16(t, from), from + (66u + block % 4u * 2u), to);
  }
};

template <>
struct GgmlCodes<kGgml_iq2_s> : GgmlGridRows<82u, 4u> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 from = begin(at, block);
    const u32 eight = block % 4u * 8u + piece * 2u + half;
    const u32 upper = shared_byte(t, from + (66u + eight / 4u)) >> (eight % 4u * 2u) & 3u;
    const u32 place = shared_byte(t, from + (2u + eight)) | upper << 8u;
    return iq2_codes(grid_entry(t, place), shared_byte(t, from + (34u + eight)));
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    quarter_scales(t, shared_f16(t, from), from + (74u + block % 4u * 2u), to);
  }
};

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
  /// d * (2 code + 1) / 8
  static MF_FN_MEMBER GgmlScale eighth_scale(f32 scale, u32 code) {
    return scale_around(scale * static_cast<f32>(2u * code + 1u) * 0.125f, 16.0f);
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
    const f32 scale = shared_f16(t, begin(at, block));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) to[i] = eighth_scale(scale, word(t, at, block, i) >> 12u & 7u);
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
    const f32 scale = f16_to_float(static_cast<u16>(bits));
    const u32 codes = shared_half(t, from + block % 4u * 2u);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) to[i] = eighth_scale(scale, codes >> (3u * i) & 7u);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
