// GgmlCodes of types whose codes choose rows of a grid: IQ2 and IQ3. A code is 64 and the number
// with its sign, as it is on CPUs.
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
/// Signs of eights 2 * half and the next one of those that four times seven bits stand for.
MF_FN W2 even_signs(u32 word, u32 half) {
  const u32 own = word >> (half * 14u);
  const W2 signs = {{with_even_sign(own & 127u), with_even_sign(own >> 7u & 127u)}};
  return signs;
}

/// Eight codes of IQ2: levels of an entry stand for 8, 25 and 43.
MF_FN W2 iq2_codes(u32 entry, u32 signs) {
  const W2 table = {{0x406b5948u, 0x40152738u}};
  const u32 bytes = (entry | entry << 8u) & 0x00ff00ffu;
  const u32 fours = (bytes | bytes << 4u) & 0x0f0f0f0fu;
  const u32 levels = (fours | fours << 2u) & 0x33333333u;
  const u32 numbers = levels | spread_signs(signs) << 2u;
  const W2 codes = {{look_up_eight(table, numbers), look_up_eight(table, numbers >> 16u)}};
  return codes;
}

/// Eight codes of IQ3 from two entries. `table` has the numbers that levels stand for.
MF_FN W2 iq3_codes(W2 table, u32 first, u32 second, u32 signs) {
  const u32 both = first | second << 16u;
  const u32 pairs = (both & 0x003f003fu) | (both << 2u & 0x3f003f00u);
  const u32 levels = (pairs & 0x07070707u) | (pairs << 1u & 0x70707070u);
  W2 codes;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    // Bytes neither carry nor borrow: 64 + number, or 127 - number + 64 - 127.
    const u32 mask = ((signs >> (4u * i) & 15u) * 0x00204081u & 0x01010101u) * 127u;
    codes.v[i] = (look_up_eight(table, levels >> (16u * i)) ^ mask) + 0x40404040u - mask;
  }
  return codes;
}

/// The codes of a part come ready, as its piece.
template <u32 BYTES, u32 SCALES>
struct GgmlGridRows : GgmlLowBits<4u, SCALES> {
  static MF_FN_MEMBER u32 begin(u32 at, u32 block) { return at + block / 4u * BYTES; }
  static MF_FN_MEMBER u32 low_piece(u32 part) { return part; }
  static MF_FN_MEMBER u32 code(u32 low, u32, u32, u32) { return low; }
  static MF_FN_MEMBER W4 join(W2 first, W2 second) {
    const W4 codes = {{first.v[0], first.v[1], second.v[0], second.v[1]}};
    return codes;
  }
  /// d * (0.5 + code) / 4
  static MF_FN_MEMBER GgmlScale quarter_scale(f32 scale, u32 code) {
    return scale_around(scale * ((0.5f + static_cast<f32>(code)) * 0.25f), 64.0f);
  }
  /// Four scales of 4 bits each at `from`.
  static MF_FN_MEMBER void quarter_scales(MF_T t, f32 scale, u32 from, MF_LOCAL(GgmlScale) to) {
    const u32 codes = shared_u16(t, from);
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
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const u32 places = shared_u16(
        t, begin(at, block) + (2u + block % 4u * 16u + piece / 2u * 8u + piece % 2u * 2u));
    const W2 signs = even_signs(word(t, at, block, piece / 2u), piece % 2u);
    return join(iq2_codes(kIq2XxsGrid[places & 0xffu], signs.v[0]),
                iq2_codes(kIq2XxsGrid[places >> 8u], signs.v[1]));
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const f32 scale = shared_f16(t, begin(at, block));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) to[i] = quarter_scale(scale, word(t, at, block, i) >> 28u);
  }
};

template <>
struct GgmlCodes<kGgml_iq2_xs> : GgmlGridRows<74u, 4u> {
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const u32 both = shared_u32(t, begin(at, block) + (2u + block % 4u * 16u + piece * 4u));
    return join(iq2_codes(kIq2XsGrid[both & 511u], with_even_sign(both >> 9u & 127u)),
                iq2_codes(kIq2XsGrid[both >> 16u & 511u], with_even_sign(both >> 25u)));
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    quarter_scales(t, shared_f16(t, from), from + (66u + block % 4u * 2u), to);
  }
};

template <>
struct GgmlCodes<kGgml_iq2_s> : GgmlGridRows<82u, 4u> {
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const u32 from = begin(at, block);
    const u32 eights = block % 4u * 8u + piece * 2u;
    const u32 places = shared_u16(t, from + (2u + eights));
    const u32 signs = shared_u16(t, from + (34u + eights));
    const u32 upper = shared_u8(t, from + (66u + eights / 4u)) >> (piece % 2u * 4u);
    return join(iq2_codes(kIq2SGrid[(places & 0xffu) | (upper & 3u) << 8u], signs & 0xffu),
                iq2_codes(kIq2SGrid[places >> 8u | (upper >> 2u & 3u) << 8u], signs >> 8u));
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
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const W2 table = {{0x1c140c04u, 0x3e342c24u}};
    const u32 places = shared_u32(t, begin(at, block) + (2u + block % 4u * 16u + piece * 4u));
    const W2 signs = even_signs(word(t, at, block, piece / 2u), piece % 2u);
    return join(iq3_codes(table, kIq3XxsGrid[places & 0xffu], kIq3XxsGrid[places >> 8u & 0xffu],
                          signs.v[0]),
                iq3_codes(table, kIq3XxsGrid[places >> 16u & 0xffu], kIq3XxsGrid[places >> 24u],
                          signs.v[1]));
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const f32 scale = 2.0f * shared_f16(t, begin(at, block));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) to[i] = quarter_scale(scale, word(t, at, block, i) >> 28u);
  }
};

template <>
struct GgmlCodes<kGgml_iq3_s> : GgmlGridRows<110u, 2u> {
  static MF_FN_MEMBER u32 entry(u32 places, u32 upper, u32 i) {
    return kIq3SGrid[(places >> (8u * i) & 0xffu) | (upper >> i & 1u) << 8u];
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const W2 table = {{0x07050301u, 0x0f0d0b09u}};
    const u32 from = begin(at, block);
    const u32 places = shared_u32(t, from + (2u + block % 4u * 16u + piece * 4u));
    const u32 upper =
        shared_u8(t, from + (66u + block % 4u * 2u + piece / 2u)) >> (piece % 2u * 4u);
    const u32 signs = shared_u16(t, from + (74u + block % 4u * 8u + piece * 2u));
    return join(iq3_codes(table, entry(places, upper, 0u), entry(places, upper, 1u), signs & 0xffu),
                iq3_codes(table, entry(places, upper, 2u), entry(places, upper, 3u), signs >> 8u));
  }
  static MF_FN_MEMBER void scales(MF_T t, u32 at, u32 block, MF_LOCAL(GgmlScale) to) {
    const u32 from = begin(at, block);
    const f32 scale = shared_f16(t, from);
    const u32 codes = shared_u8(t, from + (106u + block % 4u));
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      to[i] = scale_around(scale * static_cast<f32>(2u * (codes >> (4u * i) & 15u) + 1u), 64.0f);
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
