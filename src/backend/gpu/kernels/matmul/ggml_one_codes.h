// GgmlCodes as kernels of single tokens have them that know the type. Other numbers may stand for
// codes where these come at fewer operations: whole() makes the same integers of their sums.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_grid_codes.h"
#include "backend/gpu/kernels/matmul/ggml_low_codes.h"

namespace moeflux {
namespace gpu {
namespace kernels {

template <u32 TYPE>
struct GgmlOneCodes : GgmlCodes<TYPE> {};

/// The grid that these look up.
template <u32 TYPE>
struct GgmlOneGrid {
  static MF_FN_MEMBER void place(MF_T t, u32 type) { place_grid(t, type); }
};

/// IQ2. The table comes from shared memory, where no numbers of rows are: of two constants a
/// look-up would copy one each time.
struct GgmlHeldIq2Levels {
  static MF_FN_MEMBER W2 table(MF_T t) { return load2(MF_SHARED_AT(t, u32, 0u)); }
  static MF_FN_MEMBER void place(MF_T t, u32 type) {
    if (t.index == 0u) store2(MF_SHARED_AT(t, u32, 0u), GgmlIq2Levels::table(t));
    place_grid(t, type);
  }
};
template <>
struct GgmlOneGrid<kGgml_iq2_xxs> : GgmlHeldIq2Levels {};
template <>
struct GgmlOneGrid<kGgml_iq2_xs> : GgmlHeldIq2Levels {};
template <>
struct GgmlOneGrid<kGgml_iq2_s> : GgmlHeldIq2Levels {};

template <>
struct GgmlOneCodes<kGgml_iq2_xxs> : GgmlIq2Xxs<GgmlHeldIq2Levels> {};
template <>
struct GgmlOneCodes<kGgml_iq2_s> : GgmlIq2S<GgmlHeldIq2Levels> {};
template <>
struct GgmlOneCodes<kGgml_iq2_xs> : GgmlIq2Xs<GgmlHeldIq2Levels> {};

/// IQ3_S. Numbers are odd: half of one and 127.5 is a byte, and that minus it what all other bits
/// are.
struct GgmlOddNumbers {
  static MF_FN_MEMBER void place(MF_T t, u32) {
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, kGgmlGrid * 4u);
    const W2 table = {{0x83828180u, 0x87868584u}};
    for (u32 i = t.index; i < 512u; i += t.threads) to[i] = grid_numbers(table, kIq3SGrid[i]);
  }
};
template <>
struct GgmlOneGrid<kGgml_iq3_s> : GgmlOddNumbers {};
template <>
struct GgmlOneCodes<kGgml_iq3_s> : GgmlCodes<kGgml_iq3_s> {
  static MF_FN_MEMBER i32 whole(i32 products, f32 sum) {
    return 2 * products - 191 * static_cast<i32>(sum);
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    const u32 from = begin(at, block);
    const u32 own = shared_word_of(t, from + (2u + block % 4u * 16u), piece);
    const u32 ninth = shared_byte(t, from + (66u + block % 4u * 2u + piece / 2u));
    const u32 signs = shared_half(t, from + (74u + block % 4u * 8u + piece * 2u));
    // Four times the places of two: of bytes 0 and 2, then of 1 and 3.
    const u32 even = (own << 2u & 0x03fc03fcu) |
                     (ninth * (piece % 2u == 0u ? 0x01000400u : 0x00100040u) & 0x04000400u);
    const u32 odd = (own >> 6u & 0x03fc03fcu) |
                    (ninth * (piece % 2u == 0u ? 0x00800200u : 0x00080020u) & 0x04000400u);
    const u32 last = signs >> 8u;
    const W4 codes = {{grid_at(t, even & 0xffffu) ^ mask_of_signs(signs),
                       grid_at(t, odd & 0xffffu) ^ mask_of_next_signs(signs),
                       grid_at(t, even >> 16u) ^ mask_of_signs(last),
                       grid_at(t, odd >> 16u) ^ mask_of_next_signs(last)}};
    return codes;
  }
};

/// IQ1. An entry has eight times 1 and four times a level from 0 to 2, in the low halves of bytes
/// and then in the high ones. A code is 7 more than twice as much, or 5 more where `down` is 1.
struct GgmlOneThreeLevels {
  static MF_FN_MEMBER void place(MF_T t, u32) {
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, kGgmlGrid * 4u);
    for (u32 i = t.index; i < kGgmlWideGridWords; i += t.threads) {
      const u32 entry = kIq1Grid[i];
      const u32 levels = bytes_of_pairs(entry & 0xffu) | bytes_of_pairs(entry >> 8u) << 4u;
      to[i] = levels * 4u + 0x11111111u;
    }
  }
  /// `place`: a word with the lower bits of the place from bit 2 on; `upper`: one with the upper
  /// bits from bit 10 on.
  static MF_FN_MEMBER W2 eight_codes(MF_T t, u32 place, u32 upper, u32 down) {
    const u32 entry = grid_at(t, (place & 0x3fcu) | (upper & 0x1c00u)) - down * 0x11111111u;
    const W2 codes = {{bits_of_bytes(entry, 0u, 15u), bits_of_bytes(entry, 4u, 15u)}};
    return codes;
  }
  static MF_FN_MEMBER i32 whole(i32 products, f32 sum) {
    return 2 * products + 7 * static_cast<i32>(sum);
  }
};
template <>
struct GgmlOneGrid<kGgml_iq1_s> : GgmlOneThreeLevels {};
template <>
struct GgmlOneGrid<kGgml_iq1_m> : GgmlOneThreeLevels {};

template <>
struct GgmlOneCodes<kGgml_iq1_s> : GgmlCodes<kGgml_iq1_s> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 eight = piece % 2u * 2u + half;
    const u32 own = word(t, at, block, piece / 2u);
    const u32 places = shared_half(t, begin(at, block) + (2u + block % 4u * 8u + piece * 2u));
    return GgmlOneThreeLevels::eight_codes(t, half == 0u ? places << 2u : places >> 6u,
                                           own << (10u - 3u * eight), own >> 15u);
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlOneCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER i32 whole(i32 products, f32 sum) {
    return GgmlOneThreeLevels::whole(products, sum);
  }
};

template <>
struct GgmlOneCodes<kGgml_iq1_m> : GgmlCodes<kGgml_iq1_m> {
  static MF_FN_MEMBER W2 low_pair(MF_T t, u32 at, u32 block, u32 piece, u32 half) {
    const u32 from = begin(at, block);
    const u32 sixteen = block % 4u * 4u + piece;
    const u32 own = shared_byte(t, from + (32u + sixteen));
    const u32 places = shared_half(t, from + sixteen * 2u);
    return GgmlOneThreeLevels::eight_codes(t, half == 0u ? places << 2u : places >> 6u,
                                           own << (10u - 4u * half), own >> (3u + 4u * half) & 1u);
  }
  static MF_FN_MEMBER W4 low(MF_T t, u32 at, u32 block, u32 piece) {
    return both_pairs<GgmlOneCodes>(t, at, block, piece);
  }
  static MF_FN_MEMBER i32 whole(i32 products, f32 sum) {
    return GgmlOneThreeLevels::whole(products, sum);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
