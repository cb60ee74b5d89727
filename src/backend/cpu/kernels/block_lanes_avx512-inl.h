// Transposing and looking up for block_fill-inl.h, in 512-bit registers.

constexpr int kWordBytes = 64;
#include "backend/cpu/kernels/block_words-inl.h"
//
#include "backend/cpu/kernels/block_lanes_x86-inl.h"

/// The four words of 16 bytes of each row.
MF_INLINE void transpose_words(const uint8_t* from, const RowSteps& rows, Words* to) {
  const FourRows fours[4] = {{from, rows, 0}, {from, rows, 1}, {from, rows, 2}, {from, rows, 3}};
  __m512i w[4];  // row k in lane 0, k + 4 in lane 1, ...
  MF_UNROLL
  for (int k = 0; k < 4; ++k) {
    const auto load = [&](int four) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(fours[four][k]));
    };
    w[k] = _mm512_castsi128_si512(load(0));
    w[k] = _mm512_mask_broadcast_i32x4(w[k], 0x00f0, load(1));
    w[k] = _mm512_mask_broadcast_i32x4(w[k], 0x0f00, load(2));
    w[k] = _mm512_mask_broadcast_i32x4(w[k], 0xf000, load(3));
  }
  const __m512i a = _mm512_unpacklo_epi32(w[0], w[1]);
  const __m512i b = _mm512_unpackhi_epi32(w[0], w[1]);
  const __m512i c = _mm512_unpacklo_epi32(w[2], w[3]);
  const __m512i d = _mm512_unpackhi_epi32(w[2], w[3]);
  to[0] = reinterpret_cast<Words>(_mm512_unpacklo_epi64(a, c));
  to[1] = reinterpret_cast<Words>(_mm512_unpackhi_epi64(a, c));
  to[2] = reinterpret_cast<Words>(_mm512_unpacklo_epi64(b, d));
  to[3] = reinterpret_cast<Words>(_mm512_unpackhi_epi64(b, d));
}

/// The eight words of 32 bytes of each row: fewer loads than two times four.
MF_INLINE void transpose_octets(const uint8_t* from, const RowSteps& rows, Words* to) {
  __m512i quads[2][4];  // words i and 4 + i of rows 8 * half to 8 * half + 7
  MF_UNROLL
  for (int half = 0; half < 2; ++half) {
    const FourRows low(from, rows, 2 * half);
    const FourRows high(from, rows, 2 * half + 1);
    __m512i w[4];  // row k in the lower half, k + 4 in the upper one
    MF_UNROLL
    for (int k = 0; k < 4; ++k) {
      const auto load = [](const uint8_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      };
      w[k] = _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(load(low[k])), 0xf0, load(high[k]));
    }
    const __m512i a = _mm512_unpacklo_epi32(w[0], w[1]);
    const __m512i b = _mm512_unpackhi_epi32(w[0], w[1]);
    const __m512i c = _mm512_unpacklo_epi32(w[2], w[3]);
    const __m512i d = _mm512_unpackhi_epi32(w[2], w[3]);
    quads[half][0] = _mm512_unpacklo_epi64(a, c);
    quads[half][1] = _mm512_unpackhi_epi64(a, c);
    quads[half][2] = _mm512_unpacklo_epi64(b, d);
    quads[half][3] = _mm512_unpackhi_epi64(b, d);
  }
  MF_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[i] = reinterpret_cast<Words>(_mm512_shuffle_i32x4(quads[0][i], quads[1][i], 0x88));
    to[4 + i] = reinterpret_cast<Words>(_mm512_shuffle_i32x4(quads[0][i], quads[1][i], 0xdd));
  }
}

/// Halves in the low parts of words. Intel's multiplications and additions of numbers below the
/// normal ones, which scales of small weights are, take some 150 cycles; conversions do not.
MF_INLINE Floats halves_to_floats(Words bits) {
  return reinterpret_cast<Floats>(
      _mm512_cvtph_ps(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(bits))));
}

/// The 32 bits, 16 bits, halves at `from` of all rows.
MF_INLINE Words gather_words(const uint8_t* from, const RowSteps& rows) {
  __m512i words = _mm512_castsi128_si512(four_words({from, rows, 0}));
  words = _mm512_inserti32x4(words, four_words({from, rows, 1}), 1);
  words = _mm512_inserti32x4(words, four_words({from, rows, 2}), 2);
  return reinterpret_cast<Words>(_mm512_inserti32x4(words, four_words({from, rows, 3}), 3));
}
MF_INLINE __m256i gather_packed_u16(const uint8_t* from, const RowSteps& rows) {
  const auto at = [&](int four) { return four_u16({from, rows, four}); };
  return _mm256_set_epi64x(at(3), at(2), at(1), at(0));
}
MF_INLINE Words gather_u16(const uint8_t* from, const RowSteps& rows) {
  return reinterpret_cast<Words>(_mm512_cvtepu16_epi32(gather_packed_u16(from, rows)));
}
MF_INLINE Floats gather_halves(const uint8_t* from, const RowSteps& rows) {
  return reinterpret_cast<Floats>(_mm512_cvtph_ps(gather_packed_u16(from, rows)));
}

/// table[byte] of bytes below 16.
MF_INLINE Words look_up_bytes(Words from, const uint8_t (&table)[16]) {
  const __m512i numbers =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return reinterpret_cast<Words>(_mm512_shuffle_epi8(numbers, reinterpret_cast<__m512i>(from)));
}

/// Four levels of 2 bits, those of byte kByte of a row's word, in a byte each: of even bytes in the
/// lowest two bits, of odd ones in the two above them.
template <int kByte>
MF_INLINE Words spread_levels(Words words) {
  const __m512i byte_of_lane =
      _mm512_add_epi32(_mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)),
                       _mm512_set1_epi8(kByte));
  const __m512i four = _mm512_shuffle_epi8(reinterpret_cast<__m512i>(words), byte_of_lane);
  const __m512i places = _mm512_srlv_epi16(four, _mm512_set1_epi32(4 << 16));
  return reinterpret_cast<Words>(_mm512_and_si512(places, _mm512_set1_epi32(0x0c030c03)));
}

/// Whether bit 4 * kLine + b of the words is set, for byte b of each.
template <int kLine>
MF_INLINE __mmask64 set_columns(Words words) {
  const __m512i byte_of_lane =
      _mm512_add_epi32(_mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)),
                       _mm512_set1_epi8(kLine / 2));
  const __m512i four = _mm512_shuffle_epi8(reinterpret_cast<__m512i>(words), byte_of_lane);
  return _mm512_test_epi8_mask(
      four, _mm512_set1_epi32(kLine % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u)));
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b.
template <int kLine>
MF_INLINE Words add_where_set(Words codes, Words bits, uint8_t value) {
  const auto bytes = reinterpret_cast<__m512i>(codes);
  const __m512i more = _mm512_set1_epi8(static_cast<char>(value));
  return reinterpret_cast<Words>(
      _mm512_mask_add_epi8(bytes, set_columns<kLine>(bits), bytes, more));
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE Words look_up_signed(Words from, Words signs, const uint8_t (&table)[16]) {
  const auto codes = reinterpret_cast<__m512i>(look_up_bytes(from, table));
  return reinterpret_cast<Words>(_mm512_mask_sub_epi8(
      codes, set_columns<kLine>(signs), _mm512_set1_epi8(static_cast<char>(128)), codes));
}

/// Entries of a table of 32 << kLog by 32 indices, of which no higher bits count.
template <int kLog>
MF_INLINE __m512i permute_entries(const uint16_t* table, __m512i index) {
  if constexpr (kLog == 1) {
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(table), index,
                                     _mm512_loadu_si512(table + 32));
  } else {
    const __mmask32 upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(32 << (kLog - 1)));
    return _mm512_mask_blend_epi16(upper, permute_entries<kLog - 1>(table, index),
                                   permute_entries<kLog - 1>(table + (32 << (kLog - 1)), index));
  }
}
/// Entries of a grid for indices of 16 bits. The largest grid takes 64 permutations with what
/// chooses among them; loads of single entries take less.
template <int kSize>
MF_INLINE Words look_up_entries(Words index, const uint16_t (&grid)[kSize]) {
  if constexpr (kSize == 2048) {
    return look_up_one_by_one(index, grid);
  } else {
    constexpr int kLog = kSize == 256 ? 3 : kSize == 512 ? 4 : 5;
    static_assert(kSize == 32 << kLog);
    return reinterpret_cast<Words>(permute_entries<kLog>(grid, reinterpret_cast<__m512i>(index)));
  }
}
