// Registers of f16 numbers of AVX2, of which halves_x86-inl.h makes columns.
// Included inside the namespace of one ISA, before halves_x86-inl.h.

using Halves = __m256i;

/// Row i of eight, sixteen columns.
MF_INLINE Halves hload(const uint8_t* const* rows, int i, int64_t offset) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[i] + offset));
}
MF_INLINE void hstore(uint8_t* to, Halves v) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to), v);
}
MF_INLINE Halves hlow16(Halves a, Halves b) { return _mm256_unpacklo_epi16(a, b); }
MF_INLINE Halves hhigh16(Halves a, Halves b) { return _mm256_unpackhi_epi16(a, b); }
MF_INLINE Halves hlow32(Halves a, Halves b) { return _mm256_unpacklo_epi32(a, b); }
MF_INLINE Halves hhigh32(Halves a, Halves b) { return _mm256_unpackhi_epi32(a, b); }
MF_INLINE Halves hlow64(Halves a, Halves b) { return _mm256_unpacklo_epi64(a, b); }
MF_INLINE Halves hhigh64(Halves a, Halves b) { return _mm256_unpackhi_epi64(a, b); }
