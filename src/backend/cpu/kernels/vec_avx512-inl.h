// Vectors of sixteen f32: AVX-512 F, BW, VL and DQ.
// Included inside the namespace of one ISA; see kernels-inl.h.

using Vec = __m512;
constexpr int kLanes = 16;
constexpr int kRegisters = 32;

MF_INLINE Vec vset(float x) { return _mm512_set1_ps(x); }
MF_INLINE Vec vload(const float* p) { return _mm512_loadu_ps(p); }
MF_INLINE void vstore(float* p, Vec v) { _mm512_storeu_ps(p, v); }
MF_INLINE __mmask16 partial_mask(int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}
MF_INLINE Vec vload_partial(const float* p, int64_t count) {
  return _mm512_maskz_loadu_ps(partial_mask(count), p);
}
MF_INLINE void vstore_partial(float* p, Vec v, int64_t count) {
  _mm512_mask_storeu_ps(p, partial_mask(count), v);
}

MF_INLINE Vec vadd(Vec a, Vec b) { return _mm512_add_ps(a, b); }
MF_INLINE Vec vsub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
MF_INLINE Vec vmul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
MF_INLINE Vec vdiv(Vec a, Vec b) { return _mm512_div_ps(a, b); }
/// b where either is NaN.
MF_INLINE Vec vmax(Vec a, Vec b) { return _mm512_max_ps(a, b); }
MF_INLINE Vec vmin(Vec a, Vec b) { return _mm512_min_ps(a, b); }
MF_INLINE Vec vfma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
MF_INLINE Vec vfused(Vec a, Vec b, Vec c) { return vfma(a, b, c); }
MF_INLINE float vreduce_add(Vec v) {
  const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
MF_INLINE float vreduce_max(Vec v) {
  const __m256 y = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
MF_INLINE float scalar_sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

/// Nearest integer.
MF_INLINE Vec vround(Vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// v * 2^n for integral n, rounded once.
MF_INLINE Vec vscale(Vec v, Vec n) { return _mm512_scalef_ps(v, n); }

MF_INLINE __m128i load_16_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
MF_INLINE __m256i load_32_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
MF_INLINE Vec vload_bf16(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32_bytes(p)), 16));
}
MF_INLINE Vec vload_f16(const uint8_t* p) { return _mm512_cvtph_ps(load_32_bytes(p)); }
/// The first `count` < kLanes elements, zeros behind them.
MF_INLINE Vec vload_bf16_partial(const uint8_t* p, int64_t count) {
  const __m256i bits = _mm256_maskz_loadu_epi16(partial_mask(count), p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
MF_INLINE Vec vload_f16_partial(const uint8_t* p, int64_t count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(partial_mask(count), p));
}
/// Rounds to nearest even, as all of them do.
MF_INLINE void vstore_f16(uint8_t* p, Vec v) {
  const __m256i halves = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(p, &halves, sizeof(halves));
}
MF_INLINE Vec vload_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_bytes(p)));
}
MF_INLINE Vec vload_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p)));
}
/// One f16 in all lanes.
MF_INLINE Vec vset_f16(const uint8_t* p) {
  int16_t half;
  __builtin_memcpy(&half, p, sizeof(half));
  return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}

/// The lower half of lanes a, the upper b.
MF_INLINE Vec vhalves(float a, float b) {
  return _mm512_mask_mov_ps(_mm512_set1_ps(a), 0xff00, _mm512_set1_ps(b));
}
/// 16 e4m3 codes, each 256 times too small: halves that have the same bits.
MF_INLINE Vec vload_e4m3(const uint8_t* p) {
  const __m256i codes = _mm256_cvtepu8_epi16(load_16_bytes(p));
  const __m256i most = _mm256_set1_epi16(0x3f80);
  const __m256i magnitude = _mm256_and_si256(_mm256_slli_epi16(codes, 7), most);
  const __m256i nan =
      _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, most), _mm256_set1_epi16(0x7e00));
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(codes, 8), _mm256_set1_epi16(-0x8000));
  return _mm512_cvtph_ps(_mm256_or_si256(_mm256_or_si256(magnitude, nan), sign));
}

/// The sixteen values a code can mean: one permute decodes sixteen codes, and it ignores the bits
/// above the low four, so nothing has to be masked.
struct NibbleTable {
  Vec values;
};
MF_INLINE NibbleTable make_nibble_table(Vec scale, Vec bias) {
  const Vec codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {vfma(codes, scale, bias)};
}
/// 16 bytes, 32 codes: lane i of out[k] is code 2 i + k.
MF_INLINE void vdecode_nibbles(const NibbleTable& table, const uint8_t* p, Vec* out) {
  const __m512i words = _mm512_cvtepu8_epi32(load_16_bytes(p));
  out[0] = _mm512_permutexvar_ps(words, table.values);
  out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4), table.values);
}
/// The same order, of e2m1 codes times the scale of each lane.
MF_INLINE void vdecode_e2m1(const uint8_t* p, Vec scale, Vec* out) {
  const Vec table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                   -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  const __m512i words = _mm512_cvtepu8_epi32(load_16_bytes(p));
  out[0] = _mm512_mul_ps(_mm512_permutexvar_ps(words, table), scale);
  out[1] = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(words, 4), table), scale);
}
/// Reorders 32 activations the way vdecode_nibbles orders codes.
MF_INLINE void permute_chunk(const float* x, float* out) {
  const Vec a = vload(x);
  const Vec b = vload(x + 16);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  vstore(out, _mm512_permutex2var_ps(a, even, b));
  vstore(out + 16, _mm512_permutex2var_ps(a, odd, b));
}
/// Lane i of out[j] is p[4 i + j].
MF_INLINE void vload_deinterleaved4(const float* p, Vec* out) {
  const Vec a = vload(p);
  const Vec b = vload(p + 16);
  const Vec c = vload(p + 32);
  const Vec d = vload(p + 48);
  const __m512i pairs = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i next = _mm512_add_epi32(pairs, _mm512_set1_epi32(2));
  const Vec ab01 = _mm512_permutex2var_ps(a, pairs, b);  // taps 0 | taps 1 of eight channels
  const Vec cd01 = _mm512_permutex2var_ps(c, pairs, d);
  const Vec ab23 = _mm512_permutex2var_ps(a, next, b);
  const Vec cd23 = _mm512_permutex2var_ps(c, next, d);
  out[0] = _mm512_shuffle_f32x4(ab01, cd01, 0x44);
  out[1] = _mm512_shuffle_f32x4(ab01, cd01, 0xee);
  out[2] = _mm512_shuffle_f32x4(ab23, cd23, 0x44);
  out[3] = _mm512_shuffle_f32x4(ab23, cd23, 0xee);
}
/// Codes of kBits bits at `shift` of sixteen words.
template <int kBits>
MF_INLINE Vec vcodes(const uint8_t* words, int shift) {
  const __m512i codes = _mm512_srli_epi32(_mm512_loadu_si512(words), static_cast<unsigned>(shift));
  if constexpr (kBits == 8) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32(0xff)));
  } else {
    // The permutation looks at the low four bits only.
    const Vec values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(codes, values);
  }
}
/// Lane j of m[i] becomes lane i of m[j].
MF_INLINE void vtranspose(Vec* m) {
  for (int i = 0; i < 16; i += 4) {
    const __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(m[i], m[i + 1]));
    const __m512d ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(m[i], m[i + 1]));
    const __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(m[i + 2], m[i + 3]));
    const __m512d cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(m[i + 2], m[i + 3]));
    m[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_low, cd_low));
    m[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_low, cd_low));
    m[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high));
    m[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high));
  }
  // Each quarter of 128 bits holds a transposed 4 x 4 block: now transpose the quarters.
  for (int i = 0; i < 4; ++i) {
    const Vec ab_low = _mm512_shuffle_f32x4(m[i], m[i + 4], 0x44);
    const Vec ab_high = _mm512_shuffle_f32x4(m[i], m[i + 4], 0xee);
    const Vec cd_low = _mm512_shuffle_f32x4(m[i + 8], m[i + 12], 0x44);
    const Vec cd_high = _mm512_shuffle_f32x4(m[i + 8], m[i + 12], 0xee);
    m[i] = _mm512_shuffle_f32x4(ab_low, cd_low, 0x88);
    m[i + 4] = _mm512_shuffle_f32x4(ab_low, cd_low, 0xdd);
    m[i + 8] = _mm512_shuffle_f32x4(ab_high, cd_high, 0x88);
    m[i + 12] = _mm512_shuffle_f32x4(ab_high, cd_high, 0xdd);
  }
}
