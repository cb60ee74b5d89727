// Vectors of eight f32: AVX2 with FMA and F16C.
// Included inside the namespace of one ISA; see kernels-inl.h.

using Vec = __m256;
constexpr int kLanes = 8;
constexpr int kRegisters = 16;

MF_INLINE Vec vset(float x) { return _mm256_set1_ps(x); }
MF_INLINE Vec vload(const float* p) { return _mm256_loadu_ps(p); }
MF_INLINE void vstore(float* p, Vec v) { _mm256_storeu_ps(p, v); }
MF_INLINE __m256i partial_mask(int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}
MF_INLINE Vec vload_partial(const float* p, int64_t count) {
  return _mm256_maskload_ps(p, partial_mask(count));
}
MF_INLINE void vstore_partial(float* p, Vec v, int64_t count) {
  _mm256_maskstore_ps(p, partial_mask(count), v);
}

MF_INLINE Vec vadd(Vec a, Vec b) { return _mm256_add_ps(a, b); }
MF_INLINE Vec vsub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
MF_INLINE Vec vmul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
MF_INLINE Vec vdiv(Vec a, Vec b) { return _mm256_div_ps(a, b); }
/// b where either is NaN.
MF_INLINE Vec vmax(Vec a, Vec b) { return _mm256_max_ps(a, b); }
MF_INLINE Vec vmin(Vec a, Vec b) { return _mm256_min_ps(a, b); }
MF_INLINE Vec vfma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
MF_INLINE Vec vfused(Vec a, Vec b, Vec c) { return vfma(a, b, c); }
MF_INLINE float vreduce_add(Vec v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
MF_INLINE float vreduce_max(Vec v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
MF_INLINE float scalar_sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

/// Nearest integer.
MF_INLINE Vec vround(Vec v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// v * 2^n for integral n in [-252, 254]; two factors, so that results may be subnormal.
MF_INLINE Vec vscale(Vec v, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(v, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}

MF_INLINE __m128i load_16_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
MF_INLINE Vec vload_bf16(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(p)), 16));
}
MF_INLINE Vec vload_f16(const uint8_t* p) { return _mm256_cvtph_ps(load_16_bytes(p)); }
#include "backend/cpu/kernels/vec_partial-inl.h"
/// Rounds to nearest even, as all of them do.
MF_INLINE void vstore_f16(uint8_t* p, Vec v) {
  const __m128i halves = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(p, &halves, sizeof(halves));
}
MF_INLINE Vec vload_u8(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}
MF_INLINE Vec vload_i8(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
/// One f16 in all lanes.
MF_INLINE Vec vset_f16(const uint8_t* p) {
  int16_t half;
  __builtin_memcpy(&half, p, sizeof(half));
  return _mm256_cvtph_ps(_mm_set1_epi16(half));
}

/// The lower half of lanes a, the upper b.
MF_INLINE Vec vhalves(float a, float b) {
  return _mm256_insertf128_ps(_mm256_set1_ps(a), _mm_set1_ps(b), 1);
}
/// Eight e4m3 codes, each 256 times too small: halves that have the same bits.
MF_INLINE Vec vload_e4m3(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i codes = _mm_cvtepu8_epi16(bytes);
  const __m128i most = _mm_set1_epi16(0x3f80);
  const __m128i magnitude = _mm_and_si128(_mm_slli_epi16(codes, 7), most);
  const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, most), _mm_set1_epi16(0x7e00));
  const __m128i sign = _mm_and_si128(_mm_slli_epi16(codes, 8), _mm_set1_epi16(-0x8000));
  return _mm256_cvtph_ps(_mm_or_si128(_mm_or_si128(magnitude, nan), sign));
}

/// 16 bytes, 32 codes: lane i of out[k] is code 4 i + k.
MF_INLINE void vdecode_nibbles(const NibbleTable& table, const uint8_t* p, Vec* out) {
  const __m256i words = _mm256_cvtepu16_epi32(load_16_bytes(p));
  const __m256i mask = _mm256_set1_epi32(15);
  const __m256i c0 = _mm256_and_si256(words, mask);
  const __m256i c1 = _mm256_and_si256(_mm256_srli_epi32(words, 4), mask);
  const __m256i c2 = _mm256_and_si256(_mm256_srli_epi32(words, 8), mask);
  const __m256i c3 = _mm256_srli_epi32(words, 12);
  out[0] = vfma(_mm256_cvtepi32_ps(c0), table.scale, table.bias);
  out[1] = vfma(_mm256_cvtepi32_ps(c1), table.scale, table.bias);
  out[2] = vfma(_mm256_cvtepi32_ps(c2), table.scale, table.bias);
  out[3] = vfma(_mm256_cvtepi32_ps(c3), table.scale, table.bias);
}
/// The same order, of e2m1 codes times the scale of each lane.
MF_INLINE void vdecode_e2m1(const uint8_t* p, Vec scale, Vec* out) {
  const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign = _mm256_set1_epi32(static_cast<int>(0x80000000u));
  __m256i codes = _mm256_cvtepu16_epi32(load_16_bytes(p));
  for (int k = 0; k < 4; ++k) {
    // A permute looks at the lowest three bits of each lane.
    const __m256 value = _mm256_permutevar8x32_ps(magnitudes, codes);
    const __m256i negative = _mm256_and_si256(_mm256_slli_epi32(codes, 28), sign);
    out[k] = _mm256_mul_ps(_mm256_xor_ps(value, _mm256_castsi256_ps(negative)), scale);
    codes = _mm256_srli_epi32(codes, 4);
  }
}
/// Lane i of out[j] is p[4 i + j].
MF_INLINE void vload_deinterleaved4(const float* p, Vec* out) {
  const __m256 a =
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 16), 1);
  const __m256 b =
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4)), _mm_loadu_ps(p + 20), 1);
  const __m256 c =
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 8)), _mm_loadu_ps(p + 24), 1);
  const __m256 d =
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 12)), _mm_loadu_ps(p + 28), 1);
  const __m256d ab_low = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));   // a0 b0 a1 b1
  const __m256d ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));  // a2 b2 a3 b3
  const __m256d cd_low = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
  const __m256d cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
  out[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low));
  out[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low));
  out[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high));
  out[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high));
}
/// Reorders 32 activations the way vdecode_nibbles orders codes.
MF_INLINE void permute_chunk(const float* x, float* out) {
  Vec v[4];
  vload_deinterleaved4(x, v);
  for (int k = 0; k < 4; ++k) vstore(out + 8 * k, v[k]);
}
/// Codes of kBits bits at `shift` of eight words.
template <int kBits>
MF_INLINE Vec vcodes(const uint8_t* words, int shift) {
  const __m256i codes =
      _mm256_srli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)), shift);
  return _mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32((1 << kBits) - 1)));
}
/// Lane j of m[i] becomes lane i of m[j].
MF_INLINE void vtranspose(Vec* m) {
  for (int i = 0; i < 8; i += 4) {
    const __m256d ab_low = _mm256_castps_pd(_mm256_unpacklo_ps(m[i], m[i + 1]));
    const __m256d ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(m[i], m[i + 1]));
    const __m256d cd_low = _mm256_castps_pd(_mm256_unpacklo_ps(m[i + 2], m[i + 3]));
    const __m256d cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(m[i + 2], m[i + 3]));
    m[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low));
    m[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low));
    m[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high));
    m[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high));
  }
  for (int i = 0; i < 4; ++i) {
    const Vec low = m[i];
    const Vec high = m[i + 4];
    m[i] = _mm256_permute2f128_ps(low, high, 0x20);
    m[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
  }
}
