// The part of block_lanes_*-inl.h that x86-64 has in common.

/// 16 bits of each of four rows. Composed in general registers: what was stored in pieces cannot be
/// loaded whole before it has reached the cache.
MF_INLINE int64_t four_u16(const FourRows& rows) {
  uint64_t four = 0;
  MF_UNROLL
  for (int r = 0; r < 4; ++r) {
    four |= static_cast<uint64_t>(load_u16(rows[r])) << (16 * r);
  }
  asm("" : "+r"(four));  // or g++ composes it in vectors after all
  return static_cast<int64_t>(four);
}
/// 32 bits of each of four rows.
MF_INLINE __m128i four_words(const FourRows& rows) {
  const auto at = [&](int row) { return static_cast<int>(load_u32(rows[row])); };
  return _mm_set_epi32(at(3), at(2), at(1), at(0));
}
