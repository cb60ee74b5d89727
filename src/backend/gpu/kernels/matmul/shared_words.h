// Reads of shared memory from any byte.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

// No word is read that has none of the bytes. Blocks have an even number of bytes, but for those of
// MXFP4, and numbers of two bytes and more begin at even ones: shared_half() of the dialect reads
// these, shared_byte() any.
MF_FN u32 shared_word(MF_T t, u32 at) { return MF_SHARED_AT(t, u32, at & ~3u)[0]; }
MF_FN u32 join_words(u32 low, u32 high, u32 at) {
  return static_cast<u32>((static_cast<u64>(high) << 32u | low) >> (at % 4u * 8u));
}
MF_FN u32 shared_u32(MF_T t, u32 at) { return shared_half(t, at) | shared_half(t, at + 2u) << 16u; }
MF_FN f32 shared_f16(MF_T t, u32 at) { return f16_to_float(static_cast<u16>(shared_half(t, at))); }
/// Words of a row from any byte. Their addresses are computed once: each is one that `skip`, which
/// the compiler knows, only moves by whole words.
struct SharedWords {
  u32 from[4];
  u32 first;

  MF_FN_MEMBER void begin(u32 at) {
    first = at;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) from[i] = settled((at + i) & ~3u);
  }
  MF_FN_MEMBER u32 word(MF_T t, u32 skip) const {
    const u32 odd = skip % 4u;
    const u32 words = skip / 4u;
    MF_SHARED(u32) low = MF_SHARED_AT(t, u32, from[odd]) + words;
    MF_SHARED(u32)
    high = MF_SHARED_AT(t, u32, from[(odd + 3u) % 4u]) + (odd == 0u ? words : words + 1u);
    return join_words(low[0], high[0], first + odd);
  }
};
/// The same of rows that begin at multiples of 4, from even bytes.
struct SharedWideWords {
  u32 from;

  MF_FN_MEMBER void begin(u32 at) { from = at; }
  MF_FN_MEMBER u32 word(MF_T t, u32 skip) const {
    MF_SHARED(u32) words = MF_SHARED_AT(t, u32, from) + skip / 4u;
    return skip % 4u == 0u ? words[0] : join_words(words[0], words[1], 2u);
  }
};
/// Word `i` of those from an even byte, which others follow.
MF_FN u32 shared_word_of(MF_T t, u32 at, u32 i) {
  MF_SHARED(u32) from = MF_SHARED_AT(t, u32, at & ~3u) + i;
  return join_words(from[0], from[1], at);
}
/// 16 bytes, from any.
MF_FN W4 shared_piece(MF_T t, u32 at) {
  MF_SHARED(u32) from = MF_SHARED_AT(t, u32, at & ~3u);
  u32 words[5];
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) words[i] = from[i];
  words[4] = shared_word(t, at + 15u);
  W4 piece;
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) piece.v[i] = join_words(words[i], words[i + 1u], at);
  return piece;
}

/// 8 bytes.
MF_FN W2 shared_pair(MF_T t, u32 at) {
  const W2 pair = {{shared_u32(t, at), shared_u32(t, at + 4u)}};
  return pair;
}
/// The same from any.
MF_FN W2 shared_any_pair(MF_T t, u32 at) {
  MF_SHARED(u32) from = MF_SHARED_AT(t, u32, at & ~3u);
  const u32 middle = from[1];
  const W2 pair = {
      {join_words(from[0], middle, at), join_words(middle, shared_word(t, at + 7u), at)}};
  return pair;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
