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
