// Numbers in the pages of keys and values: f32; f16, which kernels know as u16; or rows of
// quant/q8_rows.h, which they know as u8. `scales` is where the scales of such a row begin, in
// bytes; other rows have none.
#pragma once

#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The number of a code, the lowest byte of `codes`.
MF_FN f32 code_number(u32 codes) {
  return static_cast<f32>(static_cast<i32>((codes & 0xffu) ^ 0x80u) - 128);
}

/// Column c of a row.
MF_FN f32 cached_number(MF_GLOBAL(const f32) row, u32 c, u32) { return row[c]; }
MF_FN f32 cached_number(MF_GLOBAL(const u16) row, u32 c, u32) { return f16_to_float(row[c]); }
MF_FN f32 cached_number(MF_GLOBAL(const u8) row, u32 c, u32 scales) {
  return code_number(row[c]) * f16_to_float(MF_CAST(const u16, row)[scales / 2u + c / 32u]);
}

/// Four columns as they are stored: who reads ahead holds them so, and a number is made where it is
/// needed. load() takes columns c to c + 3 of a row on a 16-byte boundary, c a multiple of four.
/// take() takes those of a piece of a row in shared memory: scales, if it has any, lie behind
/// `pieces` pieces.
template <typename Stored>
struct CachedFour {
  F4 held;

  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) held.v[i] = 0.0f;
  }
  MF_FN_MEMBER void load(MF_GLOBAL(const f32) row, u32 c, u32) { held = load4(row + c); }
  MF_FN_MEMBER void take(MF_SHARED(u32) row, u32 piece, u32) {
    const W4 words = load4(row + piece * 4u);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) held.v[i] = as_float(words.v[i]);
  }
  MF_FN_MEMBER F4 numbers() const { return held; }
};
template <>
struct CachedFour<u16> {
  W2 held;

  MF_FN_MEMBER void clear() { held.v[0] = held.v[1] = 0u; }
  MF_FN_MEMBER void load(MF_GLOBAL(const u16) row, u32 c, u32) {
    held = load2(MF_CAST(const u32, row + c));
  }
  MF_FN_MEMBER void take(MF_SHARED(u32) row, u32 piece, u32) { held = load2(row + piece * 2u); }
  MF_FN_MEMBER F4 numbers() const {
    F4 four;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) four.v[i] = f16_half(held.v[i / 2u], i % 2u);
    return four;
  }
};

MF_FN F4 code_numbers(u32 codes, f32 scale) {
  F4 four;
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) four.v[i] = code_number(codes >> (8u * i)) * scale;
  return four;
}
template <>
struct CachedFour<u8> {
  u32 codes;
  u32 scale;

  MF_FN_MEMBER void clear() { codes = scale = 0u; }
  MF_FN_MEMBER void load(MF_GLOBAL(const u8) row, u32 c, u32 scales) {
    codes = MF_CAST(const u32, row + c)[0];
    scale = MF_CAST(const u16, row)[scales / 2u + c / 32u];
  }
  MF_FN_MEMBER void take(MF_SHARED(u32) row, u32 piece, u32 pieces) {
    codes = row[piece];
    const u32 pair = row[pieces + piece / 16u];
    scale = piece / 8u % 2u == 0u ? pair & 0xffffu : pair >> 16u;
  }
  MF_FN_MEMBER F4 numbers() const {
    return code_numbers(codes, f16_to_float(static_cast<u16>(scale)));
  }
};
/// Words of scales behind the codes of a row in shared memory.
template <typename Stored>
struct CachedTail {
  enum : u32 { kWords = 0u };
};
template <>
struct CachedTail<u8> {
  enum : u32 { kWords = 4u };
};

/// Writes a row of quant/q8_rows.h, which begins on a 16-byte boundary, from `cols` numbers in
/// shared memory. A SIMD group; eight lanes have a block.
MF_FN void store_q8_row(MF_T t, MF_SHARED(f32) row, u32 cols, MF_GLOBAL(u16) to) {
  MF_ROLLED
  for (u32 begin = 0u; begin < cols; begin += 128u) {
    const u32 c = begin + t.lane * 4u;
    F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (c < cols) four = load4(row + c);
    u32 bits = 0u;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 own = as_bits(four.v[i]) & 0x7fffffffu;
      bits = own > bits ? own : bits;
    }
    MF_UNROLL
    for (u32 mask = 1u; mask < 8u; mask *= 2u) {
      const u32 other = simd_shuffle_xor(t, bits, mask);
      bits = other > bits ? other : bits;
    }
    u32 scale = pack_f16(as_float(bits) * (1.0f / 127.0f), 0.0f) & 0xffffu;
    if (scale >= 0x7c00u) scale = 0x7e00u;
    const bool has_codes = scale != 0u && scale != 0x7e00u;
    const f32 inverse = has_codes ? 1.0f / f16_to_float(static_cast<u16>(scale)) : 0.0f;
    u32 codes = 0u;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const f32 code = mf_min(mf_max(four.v[i] * inverse, -127.0f), 127.0f);
      // 1.5 * 2^23 + n is an f32 whose bits end in n, rounded to nearest even.
      codes |= (as_bits(code + 12582912.0f) & 0xffu) << (8u * i);
    }
    if (c >= cols) continue;
    MF_CAST(u32, to + c / 2u)[0] = has_codes ? codes : 0u;
    if (t.lane % 8u == 0u) to[cols / 2u + c / 32u] = static_cast<u16>(scale);
  }
  const u32 end = (cols + cols / 16u + 15u) / 16u * 8u;
  for (u32 i = cols / 2u + cols / 32u + t.lane; i < end; i += 32u) to[i] = static_cast<u16>(0u);
}

/// Store column c of a row and, in rows on 16-byte boundaries, the three after it. A page of f32
/// goes by the same pointer as one of f16.
MF_FN void store_cached(MF_GLOBAL(u16) row, u32 c, u32 is_f16, f32 number) {
  if (is_f16 != 0u) {
    row[c] = static_cast<u16>(pack_f16(number, 0.0f));
  } else {
    MF_CAST(f32, row)[c] = number;
  }
}
MF_FN void store_cached4(MF_GLOBAL(u16) row, u32 c, u32 is_f16, F4 four) {
  if (is_f16 != 0u) {
    const W2 pairs = {{pack_f16(four.v[0], four.v[1]), pack_f16(four.v[2], four.v[3])}};
    store2(MF_CAST(u32, row + c), pairs);
  } else {
    store4(MF_CAST(f32, row) + c, four);
  }
}
MF_FN void store_cached_columns(MF_GLOBAL(u16) row, u32 c, u32 cols, u32 wide, u32 is_f16,
                                F4 four) {
  if (wide != 0u) return store_cached4(row, c, is_f16, four);
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) {
    if (c + k < cols) store_cached(row, c + k, is_f16, four.v[k]);
  }
}
/// Where elements `at` behind the beginning of a page are, for store_cached().
MF_FN MF_GLOBAL(u16) cached_place(MF_T t, u64 page, u64 at, u32 is_f16) {
  return MF_AT(t, u16, page) + (is_f16 != 0u ? at : 2u * at);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
