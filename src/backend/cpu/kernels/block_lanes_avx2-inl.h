// Transposing and looking up for block_fill-inl.h, in 128-bit and 256-bit registers.

constexpr int kWordBytes = 32;

/// Lines 0 to 3 at `to`: the four words of 16 bytes of each of sixteen rows.
MF_INLINE void transpose_words(const uint8_t* from, int64_t row_bytes, uint8_t* to) {
  MF_UNROLL
  for (int k = 0; k < 16; k += 4) {
    const auto part = [&](int row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + (k + row) * row_bytes));
    };
    const auto store = [&](int line, __m128i words) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + line * 64 + k * 4), words);
    };
    const __m128i a = _mm_unpacklo_epi32(part(0), part(1));
    const __m128i b = _mm_unpackhi_epi32(part(0), part(1));
    const __m128i c = _mm_unpacklo_epi32(part(2), part(3));
    const __m128i d = _mm_unpackhi_epi32(part(2), part(3));
    store(0, _mm_unpacklo_epi64(a, c));
    store(1, _mm_unpackhi_epi64(a, c));
    store(2, _mm_unpacklo_epi64(b, d));
    store(3, _mm_unpackhi_epi64(b, d));
  }
}

#include "backend/cpu/kernels/block_lanes_x86-inl.h"

/// The halves at `from` of sixteen rows. Composed in general registers: what was stored in pieces
/// cannot be loaded whole before it has reached the cache.
MF_INLINE void gather_halves(const uint8_t* from, int64_t row_bytes, float* to) {
  const auto at = [&](int row) { return four_halves(from + row * row_bytes, row_bytes); };
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_set_epi64x(at(4), at(0))));
  _mm256_storeu_ps(to + 8, _mm256_cvtph_ps(_mm_set_epi64x(at(12), at(8))));
}

/// to[i] = table[from[i] & 15] of a line, and the same of the high halves.
MF_INLINE void look_up_line(const uint8_t* from, const uint8_t (&table)[16], uint8_t* low,
                            uint8_t* high) {
  const __m256i numbers =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  const __m256i mask = _mm256_set1_epi8(15);
  MF_UNROLL
  for (int i = 0; i < 64; i += 32) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const auto store = [&](uint8_t* to, __m256i nibbles) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_shuffle_epi8(numbers, nibbles));
    };
    store(low, _mm256_and_si256(codes, mask));
    store(high, _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask));
  }
}

/// to[i] = table[from[i]] of a line of numbers below 16.
MF_INLINE void look_up_bytes(const uint8_t* from, const uint8_t (&table)[16], uint8_t* to) {
  const __m256i numbers =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  MF_UNROLL
  for (int i = 0; i < 64; i += 32) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_shuffle_epi8(numbers, codes));
  }
}

/// All bits where bit 4 * kLine + b of the words is set, for byte b of each.
template <int kLine>
MF_INLINE __m256i set_columns(__m256i words) {
  const __m256i byte_of_lane = _mm256_add_epi32(
      _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)),
      _mm256_set1_epi8(kLine / 2));
  const __m256i bits =
      _mm256_set1_epi32(kLine % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
  const __m256i four = _mm256_shuffle_epi8(words, byte_of_lane);
  return _mm256_cmpeq_epi8(_mm256_and_si256(four, bits), bits);
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b.
template <int kLine>
MF_INLINE void add_where_set(const uint8_t* bits, uint8_t value, uint8_t* line) {
  MF_UNROLL
  for (int i = 0; i < 64; i += 32) {
    auto* at = reinterpret_cast<__m256i*>(line + i);
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits + i));
    const __m256i more =
        _mm256_and_si256(set_columns<kLine>(words), _mm256_set1_epi8(static_cast<char>(value)));
    _mm256_storeu_si256(at, _mm256_add_epi8(_mm256_loadu_si256(at), more));
  }
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE void look_up_signed(const uint8_t* from, const uint8_t* signs, const uint8_t (&table)[16],
                              uint8_t* to) {
  const __m256i numbers =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  MF_UNROLL
  for (int i = 0; i < 64; i += 32) {
    const auto load = [&](const uint8_t* p) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i));
    };
    const __m256i codes = _mm256_shuffle_epi8(numbers, load(from));
    const __m256i negative = set_columns<kLine>(load(signs));
    const __m256i turned = _mm256_sub_epi8(_mm256_set1_epi8(static_cast<char>(128)), codes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_blendv_epi8(codes, turned, negative));
  }
}

/// Entries of a grid for a line of indices of 16 bits.
template <int kSize>
MF_INLINE void look_up_entries(const uint8_t* index, const uint16_t (&grid)[kSize], uint8_t* to) {
  for (int i = 0; i < 64; i += 2) {
    const uint16_t entry = grid[load_u16(index + i) & (kSize - 1)];
    __builtin_memcpy(to + i, &entry, 2);
  }
}
