// Transposing and looking up for block_fill-inl.h, in 256-bit registers.

constexpr int kWordBytes = 32;
#include "backend/cpu/kernels/block_words-inl.h"
//
#include "backend/cpu/kernels/block_lanes_x86-inl.h"

/// The four words of 16 bytes of each row.
MF_INLINE void transpose_words(const uint8_t* from, const RowSteps& rows, Words* to) {
  const FourRows low(from, rows, 0);
  const FourRows high(from, rows, 1);
  __m256i w[4];  // row k in lane 0, k + 4 in lane 1
  MF_UNROLL
  for (int k = 0; k < 4; ++k) {
    const auto load = [](const uint8_t* p) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    };
    w[k] = _mm256_inserti128_si256(_mm256_castsi128_si256(load(low[k])), load(high[k]), 1);
  }
  const __m256i a = _mm256_unpacklo_epi32(w[0], w[1]);
  const __m256i b = _mm256_unpackhi_epi32(w[0], w[1]);
  const __m256i c = _mm256_unpacklo_epi32(w[2], w[3]);
  const __m256i d = _mm256_unpackhi_epi32(w[2], w[3]);
  to[0] = reinterpret_cast<Words>(_mm256_unpacklo_epi64(a, c));
  to[1] = reinterpret_cast<Words>(_mm256_unpackhi_epi64(a, c));
  to[2] = reinterpret_cast<Words>(_mm256_unpacklo_epi64(b, d));
  to[3] = reinterpret_cast<Words>(_mm256_unpackhi_epi64(b, d));
}
/// The eight words of 32 bytes of each row.
MF_INLINE void transpose_octets(const uint8_t* from, const RowSteps& rows, Words* to) {
  transpose_words(from, rows, to);
  transpose_words(from + 16, rows, to + 4);
}

/// Halves in the low parts of words, of which the upper ones are 0. As block_lanes_avx512-inl.h has
/// it, small ones do not take longer.
MF_INLINE Floats halves_to_floats(Words bits) {
  const auto words = reinterpret_cast<__m256i>(bits);
  const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  return reinterpret_cast<Floats>(_mm256_cvtph_ps(_mm256_castsi256_si128(pairs)));
}

/// The 32 bits, 16 bits, halves at `from` of all rows.
MF_INLINE Words gather_words(const uint8_t* from, const RowSteps& rows) {
  return reinterpret_cast<Words>(
      _mm256_set_m128i(four_words({from, rows, 1}), four_words({from, rows, 0})));
}
MF_INLINE __m128i gather_packed_u16(const uint8_t* from, const RowSteps& rows) {
  return _mm_set_epi64x(four_u16({from, rows, 1}), four_u16({from, rows, 0}));
}
MF_INLINE Words gather_u16(const uint8_t* from, const RowSteps& rows) {
  return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(gather_packed_u16(from, rows)));
}
MF_INLINE Floats gather_halves(const uint8_t* from, const RowSteps& rows) {
  return reinterpret_cast<Floats>(_mm256_cvtph_ps(gather_packed_u16(from, rows)));
}

/// table[byte] of bytes below 16.
MF_INLINE Words look_up_bytes(Words from, const uint8_t (&table)[16]) {
  const __m256i numbers =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return reinterpret_cast<Words>(_mm256_shuffle_epi8(numbers, reinterpret_cast<__m256i>(from)));
}

/// Four levels of 2 bits, those of byte kByte of a row's word, in a byte each. AVX-512's way is no
/// faster here, where loads of entries take most of the time.
template <int kByte>
MF_INLINE Words spread_levels(Words words) {
  return spread_pairs(words >> (8 * kByte) & 255u);
}

/// All bits where bit 4 * kLine + b of the words is set, for byte b of each.
template <int kLine>
MF_INLINE __m256i set_columns(Words words) {
  const __m256i byte_of_lane = _mm256_add_epi32(
      _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)),
      _mm256_set1_epi8(kLine / 2));
  const __m256i bits =
      _mm256_set1_epi32(kLine % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  const __m256i four = _mm256_shuffle_epi8(reinterpret_cast<__m256i>(words), byte_of_lane);
  return _mm256_cmpeq_epi8(_mm256_and_si256(four, bits), bits);
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b.
template <int kLine>
MF_INLINE Words add_where_set(Words codes, Words bits, uint8_t value) {
  const __m256i more =
      _mm256_and_si256(set_columns<kLine>(bits), _mm256_set1_epi8(static_cast<char>(value)));
  return reinterpret_cast<Words>(_mm256_add_epi8(reinterpret_cast<__m256i>(codes), more));
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE Words look_up_signed(Words from, Words signs, const uint8_t (&table)[16]) {
  const auto codes = reinterpret_cast<__m256i>(look_up_bytes(from, table));
  const __m256i turned = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(128)), codes);
  return reinterpret_cast<Words>(_mm256_blendv_epi8(codes, turned, set_columns<kLine>(signs)));
}

/// Entries of a grid for indices of 16 bits.
template <int kSize>
MF_INLINE Words look_up_entries(Words index, const uint16_t (&grid)[kSize]) {
  return look_up_one_by_one(index, grid);
}
