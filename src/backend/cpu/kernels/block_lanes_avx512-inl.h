// Transposing and looking up for block_fill-inl.h, in 512-bit registers.

constexpr int kWordBytes = 64;

/// Lines 0 to 3 at `to`: the four words of 16 bytes of each of sixteen rows.
MF_INLINE void transpose_words(const uint8_t* from, int64_t row_bytes, uint8_t* to) {
  __m512i rows[4];  // row k in lane 0, k + 4 in lane 1, ...
  MF_UNROLL
  for (int k = 0; k < 4; ++k) {
    const auto part = [&](int row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * row_bytes));
    };
    rows[k] = _mm512_castsi128_si512(part(k));
    rows[k] = _mm512_inserti32x4(rows[k], part(k + 4), 1);
    rows[k] = _mm512_inserti32x4(rows[k], part(k + 8), 2);
    rows[k] = _mm512_inserti32x4(rows[k], part(k + 12), 3);
  }
  const __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i b = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i c = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i d = _mm512_unpackhi_epi32(rows[2], rows[3]);
  _mm512_storeu_si512(to, _mm512_unpacklo_epi64(a, c));
  _mm512_storeu_si512(to + 64, _mm512_unpackhi_epi64(a, c));
  _mm512_storeu_si512(to + 128, _mm512_unpacklo_epi64(b, d));
  _mm512_storeu_si512(to + 192, _mm512_unpackhi_epi64(b, d));
}

#include "backend/cpu/kernels/block_lanes_x86-inl.h"

/// The halves at `from` of sixteen rows. Composed in general registers: what was stored in pieces
/// cannot be loaded whole before it has reached the cache.
MF_INLINE void gather_halves(const uint8_t* from, int64_t row_bytes, float* to) {
  const auto at = [&](int row) { return four_halves(from + row * row_bytes, row_bytes); };
  _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_set_epi64x(at(12), at(8), at(4), at(0))));
}

/// to[i] = table[from[i] & 15] of a line, and the same of the high halves.
MF_INLINE void look_up_line(const uint8_t* from, const uint8_t (&table)[16], uint8_t* low,
                            uint8_t* high) {
  const __m512i numbers =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  const __m512i codes = _mm512_loadu_si512(from);
  const __m512i mask = _mm512_set1_epi8(15);
  _mm512_storeu_si512(low, _mm512_shuffle_epi8(numbers, _mm512_and_si512(codes, mask)));
  _mm512_storeu_si512(
      high, _mm512_shuffle_epi8(numbers, _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask)));
}

/// to[i] = table[from[i]] of a line of numbers below 16.
MF_INLINE void look_up_bytes(const uint8_t* from, const uint8_t (&table)[16], uint8_t* to) {
  const __m512i numbers =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  _mm512_storeu_si512(to, _mm512_shuffle_epi8(numbers, _mm512_loadu_si512(from)));
}

/// Whether bit 4 * kLine + b of the words of a line is set, for byte b of each.
template <int kLine>
MF_INLINE __mmask64 set_columns(const uint8_t* words) {
  const __m512i byte_of_lane =
      _mm512_add_epi32(_mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)),
                       _mm512_set1_epi8(kLine / 2));
  const __m512i four = _mm512_shuffle_epi8(_mm512_loadu_si512(words), byte_of_lane);
  return _mm512_test_epi8_mask(
      four, _mm512_set1_epi32(kLine % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u)));
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b.
template <int kLine>
MF_INLINE void add_where_set(const uint8_t* bits, uint8_t value, uint8_t* line) {
  const __m512i codes = _mm512_loadu_si512(line);
  const __m512i more = _mm512_set1_epi8(static_cast<char>(value));
  _mm512_storeu_si512(line, _mm512_mask_add_epi8(codes, set_columns<kLine>(bits), codes, more));
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE void look_up_signed(const uint8_t* from, const uint8_t* signs, const uint8_t (&table)[16],
                              uint8_t* to) {
  const __m512i numbers =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  const __m512i codes = _mm512_shuffle_epi8(numbers, _mm512_loadu_si512(from));
  const __mmask64 negative = set_columns<kLine>(signs);
  _mm512_storeu_si512(
      to, _mm512_mask_sub_epi8(codes, negative, _mm512_set1_epi8(static_cast<char>(128)), codes));
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
/// Entries of a grid for a line of indices of 16 bits. The largest grid takes 64 permutations with
/// what chooses among them; loads of single entries take less.
template <int kSize>
MF_INLINE void look_up_entries(const uint8_t* index, const uint16_t (&grid)[kSize], uint8_t* to) {
  if constexpr (kSize == 2048) {
    MF_UNROLL
    for (int i = 0; i < 64; i += 8) {
      uint64_t four = 0;
      MF_UNROLL
      for (int k = 0; k < 4; ++k) {
        four |= static_cast<uint64_t>(grid[load_u16(index + i + 2 * k) & (kSize - 1)]) << (16 * k);
      }
      store_u64(to + i, four);
    }
    return;
  }
  constexpr int kLog = kSize == 256 ? 3 : kSize == 512 ? 4 : 5;
  static_assert(kSize == 2048 || kSize == 32 << kLog);
  _mm512_storeu_si512(to, permute_entries<kLog>(grid, _mm512_loadu_si512(index)));
}
