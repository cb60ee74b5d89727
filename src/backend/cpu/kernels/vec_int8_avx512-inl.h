// Sixteen rows in the 32-bit lanes of 512-bit registers, for int8-inl.h.

using IVec = __m512i;
using FVec = __m512;
constexpr int kIntLanes = 16;
constexpr int kTileTokens = 8;

MF_INLINE IVec izero() { return _mm512_setzero_si512(); }
MF_INLINE IVec iload(const void* p) { return _mm512_load_si512(p); }
MF_INLINE void istore(void* p, IVec v) { _mm512_store_si512(p, v); }
MF_INLINE IVec iadd(IVec a, IVec b) { return _mm512_add_epi32(a, b); }
MF_INLINE IVec ibroadcast(const int8_t* four) {
  int32_t word;
  __builtin_memcpy(&word, four, 4);
  return _mm512_set1_epi32(word);
}
/// acc + unsigned codes times signed x, summed by fours.
template <int kBits>
MF_INLINE IVec idot(IVec acc, IVec codes, IVec x) {
  return _mm512_dpbusd_epi32(acc, codes, x);
}

MF_INLINE FVec fload(const float* p) { return _mm512_load_ps(p); }
MF_INLINE void fstore(float* p, FVec v) { _mm512_store_ps(p, v); }
MF_INLINE FVec fbroadcast(const float* p) { return _mm512_set1_ps(*p); }
MF_INLINE FVec fconvert(IVec v) { return _mm512_cvtepi32_ps(v); }
MF_INLINE FVec fmul(FVec a, FVec b) { return _mm512_mul_ps(a, b); }
MF_INLINE FVec ffma(FVec a, FVec b, FVec c) { return _mm512_fmadd_ps(a, b, c); }

MF_INLINE IVec ilow_nibbles(IVec v) { return _mm512_and_si512(v, _mm512_set1_epi8(0x0f)); }
MF_INLINE IVec ihigh_nibbles(IVec v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(0x0f));
}
/// Every eight bytes: those of even index, then those of odd index.
MF_INLINE IVec ieven_odd(IVec v) {
  return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10,
                                                                     12, 14, 9, 11, 13, 15)));
}

MF_INLINE __m256i load_codes(const uint8_t* p, int64_t bytes) {
  if (bytes >= 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_maskz_loadu_epi8((__mmask32{1} << bytes) - 1, p);
}
/// out[i]: `bytes` of row i in the low half, of row i + 8 in the high half.
MF_INLINE void iload_codes(const uint8_t* const* rows, int64_t offset, int64_t bytes, IVec* out) {
  for (int i = 0; i < 8; ++i) {
    out[i] = _mm512_inserti64x4(_mm512_castsi256_si512(load_codes(rows[i] + offset, bytes)),
                                load_codes(rows[i + 8] + offset, bytes), 1);
  }
}

MF_INLINE __m256i load_eight_floats(const uint8_t* p, ElementType type, int64_t count) {
  const auto mask = static_cast<__mmask8>((1u << count) - 1);
  if (type == ElementType::kF32) return _mm256_maskz_loadu_epi32(mask, p);
  const __m128i halves = _mm_maskz_loadu_epi16(mask, p);
  if (type == ElementType::kF16) return _mm256_castps_si256(_mm256_cvtph_ps(halves));
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}
/// Like iload_codes, with `count` <= 8 elements of `type` as f32.
MF_INLINE void iload_floats(const uint8_t* const* rows, int64_t offset, ElementType type,
                            int64_t count, IVec* out) {
  for (int i = 0; i < 8; ++i) {
    const __m256i low = load_eight_floats(rows[i] + offset, type, count);
    const __m256i high = load_eight_floats(rows[i + 8] + offset, type, count);
    out[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
}

/// Eight words of sixteen rows to eight vectors of one word of each row.
MF_INLINE void itranspose(IVec* v) {
  IVec a[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  // b[j]: words j and j + 4 of rows 0 to 3; b[j + 4]: of rows 4 to 7.
  IVec b[8];
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  const IVec low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const IVec high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm512_permutex2var_epi64(b[j], low, b[j + 4]);
    v[j + 4] = _mm512_permutex2var_epi64(b[j], high, b[j + 4]);
  }
}
