// Eight rows in the 32-bit lanes of 256-bit registers, for int8-inl.h.

using IVec = __m256i;
using FVec = __m256;
constexpr int kIntLanes = 8;
constexpr int kTileTokens = 4;

MF_INLINE IVec izero() { return _mm256_setzero_si256(); }
MF_INLINE IVec iload(const void* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
MF_INLINE void istore(void* p, IVec v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
MF_INLINE IVec iadd(IVec a, IVec b) { return _mm256_add_epi32(a, b); }
MF_INLINE IVec ibroadcast(const int8_t* four) {
  int32_t word;
  __builtin_memcpy(&word, four, 4);
  return _mm256_set1_epi32(word);
}

MF_INLINE IVec ilow_nibbles(IVec v) { return _mm256_and_si256(v, _mm256_set1_epi8(0x0f)); }
MF_INLINE IVec ihigh_nibbles(IVec v) {
  return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(0x0f));
}

/// acc + unsigned codes times signed x, summed by fours. Pairs are summed in 16 bits with
/// saturation, which 4-bit codes cannot reach (2 * 15 * 127) and 8-bit ones can: those are
/// multiplied by nibbles.
template <int kBits>
MF_INLINE IVec idot(IVec acc, IVec codes, IVec x) {
  const IVec one = _mm256_set1_epi16(1);
  if constexpr (kBits == 4) {
    return iadd(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), one));
  } else {
    const IVec low = _mm256_maddubs_epi16(ilow_nibbles(codes), x);
    const IVec high = _mm256_maddubs_epi16(ihigh_nibbles(codes), x);
    const IVec sixteen = _mm256_set1_epi16(16);
    return iadd(acc, iadd(_mm256_madd_epi16(low, one), _mm256_madd_epi16(high, sixteen)));
  }
}

MF_INLINE FVec fload(const float* p) { return _mm256_load_ps(p); }
MF_INLINE void fstore(float* p, FVec v) { _mm256_store_ps(p, v); }
MF_INLINE FVec fbroadcast(const float* p) { return _mm256_broadcast_ss(p); }
MF_INLINE FVec fconvert(IVec v) { return _mm256_cvtepi32_ps(v); }
MF_INLINE FVec fmul(FVec a, FVec b) { return _mm256_mul_ps(a, b); }
MF_INLINE FVec ffma(FVec a, FVec b, FVec c) { return _mm256_fmadd_ps(a, b, c); }

/// Every eight bytes: those of even index, then those of odd index.
MF_INLINE IVec ieven_odd(IVec v) {
  return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                    0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)));
}

/// `bytes` <= 32 of a row, zero-padded; reads nothing behind them.
MF_INLINE IVec load_bytes(const uint8_t* p, int64_t bytes) {
  if (bytes >= 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  alignas(32) uint8_t padded[32] = {};
  __builtin_memcpy(padded, p, static_cast<size_t>(bytes));
  return iload(padded);
}
/// out[i]: `bytes` of row i.
MF_INLINE void iload_codes(const uint8_t* const* rows, int64_t offset, int64_t bytes, IVec* out) {
  for (int i = 0; i < 8; ++i) out[i] = load_bytes(rows[i] + offset, bytes);
}

/// Like iload_codes, with `count` <= 8 elements of `type` as f32.
MF_INLINE void iload_floats(const uint8_t* const* rows, int64_t offset, ElementType type,
                            int64_t count, IVec* out) {
  for (int i = 0; i < 8; ++i) {
    const uint8_t* p = rows[i] + offset;
    if (type == ElementType::kF32) {
      out[i] = load_bytes(p, 4 * count);
      continue;
    }
    const __m128i halves = count == 8 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))
                                      : _mm256_castsi256_si128(load_bytes(p, 2 * count));
    out[i] = type == ElementType::kF16 ? _mm256_castps_si256(_mm256_cvtph_ps(halves))
                                       : _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
  }
}

/// Eight words of eight rows to eight vectors of one word of each row.
MF_INLINE void itranspose(IVec* v) {
  IVec a[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  // b[j]: words j and j + 4 of rows 0 to 3; b[j + 4]: of rows 4 to 7.
  IVec b[8];
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm256_permute2x128_si256(b[j], b[j + 4], 0x20);
    v[j + 4] = _mm256_permute2x128_si256(b[j], b[j + 4], 0x31);
  }
}
