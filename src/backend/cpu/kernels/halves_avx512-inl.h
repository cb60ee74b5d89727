// The same of AVX-512.
// Included inside the namespace of one ISA, before halves_x86-inl.h.

using Halves = __m512i;

/// Rows i and i + 8 of sixteen, sixteen columns.
MF_INLINE Halves hload(const uint8_t* const* rows, int i, int64_t offset) {
  const auto columns = [&](int row) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[row] + offset));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(columns(i)), columns(i + 8), 1);
}
/// The quarters are column c of rows 0 to 7, column c + 8 of them, then both of rows 8 to 15.
MF_INLINE void hstore(uint8_t* to, Halves v) {
  _mm512_store_si512(to, _mm512_shuffle_i64x2(v, v, 0xd8));
}
MF_INLINE Halves hlow16(Halves a, Halves b) { return _mm512_unpacklo_epi16(a, b); }
MF_INLINE Halves hhigh16(Halves a, Halves b) { return _mm512_unpackhi_epi16(a, b); }
MF_INLINE Halves hlow32(Halves a, Halves b) { return _mm512_unpacklo_epi32(a, b); }
MF_INLINE Halves hhigh32(Halves a, Halves b) { return _mm512_unpackhi_epi32(a, b); }
MF_INLINE Halves hlow64(Halves a, Halves b) { return _mm512_unpacklo_epi64(a, b); }
MF_INLINE Halves hhigh64(Halves a, Halves b) { return _mm512_unpackhi_epi64(a, b); }
