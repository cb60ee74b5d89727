// Numbers in the pages of keys and values: f32, or f16, which kernels know as u16.
#pragma once

#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

MF_FN f32 cached_number(f32 stored) { return stored; }
MF_FN f32 cached_number(u16 stored) { return f16_to_float(stored); }

/// Four columns as they are stored: who reads ahead holds them so, and a number is made where it is
/// needed. `from` is a multiple of four columns behind a 16-byte boundary.
template <typename Stored>
struct CachedFour {
  F4 held;

  MF_FN_MEMBER void clear() {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) held.v[i] = 0.0f;
  }
  MF_FN_MEMBER void load(MF_GLOBAL(const f32) from) { held = load4(from); }
  MF_FN_MEMBER void take(MF_SHARED(u32) from) {
    const W4 words = load4(from);
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) held.v[i] = as_float(words.v[i]);
  }
  MF_FN_MEMBER F4 numbers() const { return held; }
};
template <>
struct CachedFour<u16> {
  W2 held;

  MF_FN_MEMBER void clear() { held.v[0] = held.v[1] = 0u; }
  MF_FN_MEMBER void load(MF_GLOBAL(const u16) from) { held = load2(MF_CAST(const u32, from)); }
  MF_FN_MEMBER void take(MF_SHARED(u32) from) { held = load2(from); }
  MF_FN_MEMBER F4 numbers() const {
    F4 four;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) four.v[i] = f16_half(held.v[i / 2u], i % 2u);
    return four;
  }
};

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
