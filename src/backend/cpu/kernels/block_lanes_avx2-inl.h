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

/// Four halves, one of each of four rows.
MF_INLINE int64_t four_halves(const uint8_t* from, int64_t row_bytes) {
  uint64_t four = 0;
  MF_UNROLL
  for (int r = 0; r < 4; ++r) {
    four |= static_cast<uint64_t>(load_u16(from + r * row_bytes)) << (16 * r);
  }
  return static_cast<int64_t>(four);
}
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

/// Entries of a grid for a line of indices of 16 bits.
template <int kSize>
MF_INLINE void look_up_entries(const uint8_t* index, const uint16_t (&grid)[kSize], uint8_t* to) {
  for (int i = 0; i < 64; i += 2) {
    const uint16_t entry = grid[load_u16(index + i) & (kSize - 1)];
    __builtin_memcpy(to + i, &entry, 2);
  }
}
