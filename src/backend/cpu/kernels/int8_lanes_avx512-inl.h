// Sixteen rows in the 32-bit lanes of 512-bit registers, for int8_tiles-inl.h.

using IVec = __m512i;
using FVec = __m512;
constexpr int kIntLanes = 16;
constexpr int kPairPanels = 2;

MF_INLINE IVec izero() { return _mm512_setzero_si512(); }
MF_INLINE IVec iload(const void* p) { return _mm512_loadu_si512(p); }
MF_INLINE void istore(void* p, IVec v) { _mm512_storeu_si512(p, v); }
MF_INLINE IVec iadd(IVec a, IVec b) { return _mm512_add_epi32(a, b); }
MF_INLINE IVec ibroadcast(const uint8_t* four) {
  int32_t word;
  __builtin_memcpy(&word, four, 4);
  return _mm512_set1_epi32(word);
}
/// The bytes at even and odd places of eight, in every lane.
MF_INLINE IVec ibroadcast_picked(const uint8_t* eight, int32_t places) {
  int64_t word;
  __builtin_memcpy(&word, eight, 8);
  return _mm512_shuffle_epi8(_mm512_set1_epi64(word), _mm512_set1_epi32(places));
}
MF_INLINE IVec ibroadcast_even(const uint8_t* eight) {
  return ibroadcast_picked(eight, 0x06040200);
}
MF_INLINE IVec ibroadcast_odd(const uint8_t* eight) { return ibroadcast_picked(eight, 0x07050301); }
/// acc + unsigned codes times signed x, summed by fours.
template <int kBits>
MF_INLINE IVec idot(IVec acc, IVec codes, IVec x) {
  return _mm512_dpbusd_epi32(acc, codes, x);
}
/// The same where accumulators fill the registers: g++ 12 copies them around the intrinsic and has
/// to spill (n = 512 on one thread: 578 GOP/s with the intrinsic, 650 without).
template <int kBits>
MF_INLINE IVec idot_tight(IVec acc, IVec codes, IVec x) {
#if defined(__clang__)
  return idot<kBits>(acc, codes, x);
#else
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x));
  return acc;
#endif
}
/// Whether one instruction takes codes up to 255.
constexpr bool kDotsWholeBytes = true;
MF_INLINE IVec ilow_nibbles(IVec v) { return _mm512_and_si512(v, _mm512_set1_epi8(0x0f)); }
MF_INLINE IVec ihigh_nibbles(IVec v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(0x0f));
}

MF_INLINE FVec fzero() { return _mm512_setzero_ps(); }
MF_INLINE FVec fload(const float* p) { return _mm512_loadu_ps(p); }
MF_INLINE void fstore(float* p, FVec v) { _mm512_storeu_ps(p, v); }
MF_INLINE FVec fbroadcast(const float* p) { return _mm512_set1_ps(*p); }
MF_INLINE FVec fconvert(IVec v) { return _mm512_cvtepi32_ps(v); }
MF_INLINE FVec fmul(FVec a, FVec b) { return _mm512_mul_ps(a, b); }
MF_INLINE FVec ffma(FVec a, FVec b, FVec c) { return _mm512_fmadd_ps(a, b, c); }
/// kIntLanes elements of any type.
MF_INLINE FVec fload_element(const uint8_t* p, ElementType type) {
  if (type == ElementType::kF32) return _mm512_loadu_ps(p);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if (type == ElementType::kF16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
