// Eight rows in the 32-bit lanes of 256-bit registers, for int8_tiles-inl.h. The file that includes
// this defines MF_INT8_DPBUSD when there is an instruction for idot().

using IVec = __m256i;
using FVec = __m256;
constexpr int kIntLanes = 8;
constexpr int kPairPanels = 1;
#if defined(MF_INT8_DPBUSD)
constexpr int kBlockTokens = 6;  // times two vectors of accumulators, of 16 registers
#else
constexpr int kBlockTokens = 4;
#endif

MF_INLINE IVec izero() { return _mm256_setzero_si256(); }
MF_INLINE IVec iload(const void* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
MF_INLINE void istore(void* p, IVec v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
MF_INLINE IVec iadd(IVec a, IVec b) { return _mm256_add_epi32(a, b); }
/// The same where g++ would add all of a loop's products at its end, and spill them until then.
MF_INLINE IVec iadd_now(IVec a, IVec b) {
  IVec sum = iadd(a, b);
  asm("" : "+x"(sum));
  return sum;
}
MF_INLINE IVec ibroadcast(const uint8_t* four) {
  int32_t word;
  __builtin_memcpy(&word, four, 4);
  return _mm256_set1_epi32(word);
}
/// The bytes at even and odd places of eight, in every lane.
MF_INLINE IVec ibroadcast_picked(const uint8_t* eight, int32_t places) {
  int64_t word;
  __builtin_memcpy(&word, eight, 8);
  return _mm256_shuffle_epi8(_mm256_set1_epi64x(word), _mm256_set1_epi32(places));
}
MF_INLINE IVec ibroadcast_even(const uint8_t* eight) {
  return ibroadcast_picked(eight, 0x06040200);
}
MF_INLINE IVec ibroadcast_odd(const uint8_t* eight) { return ibroadcast_picked(eight, 0x07050301); }
MF_INLINE IVec ilow_nibbles(IVec v) { return _mm256_and_si256(v, _mm256_set1_epi8(0x0f)); }
MF_INLINE IVec ihigh_nibbles(IVec v) {
  return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(0x0f));
}

/// acc + unsigned codes times signed x, summed by fours.
template <int kBits>
MF_INLINE IVec idot(IVec acc, IVec codes, IVec x) {
#if defined(MF_INT8_DPBUSD)
  return MF_INT8_DPBUSD(acc, codes, x);
#else
  // Pairs are summed in 16 bits with saturation, which codes below 128 cannot reach (2 * 127 * 127)
  // and 8-bit ones can: those are multiplied by nibbles.
  const IVec one = _mm256_set1_epi16(1);
  if constexpr (kBits < 8) {
    return iadd_now(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), one));
  } else {
    const IVec low = _mm256_maddubs_epi16(ilow_nibbles(codes), x);
    const IVec high = _mm256_maddubs_epi16(ihigh_nibbles(codes), x);
    const IVec sixteen = _mm256_set1_epi16(16);
    return iadd_now(iadd_now(acc, _mm256_madd_epi16(low, one)), _mm256_madd_epi16(high, sixteen));
  }
#endif
}

/// Whether one instruction takes codes up to 255.
#if defined(MF_INT8_DPBUSD)
constexpr bool kDotsWholeBytes = true;
#else
constexpr bool kDotsWholeBytes = false;
#endif
template <int kBits>
MF_INLINE IVec idot_tight(IVec acc, IVec codes, IVec x) {
  return idot<kBits>(acc, codes, x);
}

MF_INLINE FVec fzero() { return _mm256_setzero_ps(); }
MF_INLINE FVec fload(const float* p) { return _mm256_loadu_ps(p); }
MF_INLINE void fstore(float* p, FVec v) { _mm256_storeu_ps(p, v); }
MF_INLINE FVec fbroadcast(const float* p) { return _mm256_broadcast_ss(p); }
MF_INLINE FVec fconvert(IVec v) { return _mm256_cvtepi32_ps(v); }
MF_INLINE FVec fmul(FVec a, FVec b) { return _mm256_mul_ps(a, b); }
MF_INLINE FVec ffma(FVec a, FVec b, FVec c) { return _mm256_fmadd_ps(a, b, c); }
/// kIntLanes elements of any type.
MF_INLINE FVec fload_element(const uint8_t* p, ElementType type) {
  if (type == ElementType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if (type == ElementType::kF16) return _mm256_cvtph_ps(halves);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
