// Four rows in the 32-bit lanes of 128-bit registers, for int8_tiles-inl.h.

using IVec = int32x4_t;
using FVec = float32x4_t;
constexpr int kIntLanes = 4;
constexpr int kPairPanels = 1;

MF_INLINE IVec izero() { return vdupq_n_s32(0); }
MF_INLINE IVec iload(const void* p) {
  return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
}
MF_INLINE void istore(void* p, IVec v) {
  vst1q_u8(static_cast<uint8_t*>(p), vreinterpretq_u8_s32(v));
}
MF_INLINE IVec iadd(IVec a, IVec b) { return vaddq_s32(a, b); }
MF_INLINE IVec ibroadcast(const uint8_t* four) {
  int32_t word;
  __builtin_memcpy(&word, four, 4);
  return vdupq_n_s32(word);
}
/// The bytes at even and odd places of eight, in every lane.
MF_INLINE IVec ibroadcast_even(const uint8_t* eight) {
  const uint8x8_t bytes = vld1_u8(eight);
  const uint8x8_t even = vuzp1_u8(bytes, bytes);
  return vreinterpretq_s32_u8(vcombine_u8(even, even));
}
MF_INLINE IVec ibroadcast_odd(const uint8_t* eight) {
  const uint8x8_t bytes = vld1_u8(eight);
  const uint8x8_t odd = vuzp2_u8(bytes, bytes);
  return vreinterpretq_s32_u8(vcombine_u8(odd, odd));
}
MF_INLINE IVec ilow_nibbles(IVec v) {
  return vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_s32(v), vdupq_n_u8(0x0f)));
}
MF_INLINE IVec ihigh_nibbles(IVec v) {
  return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(v), 4));
}

/// acc + unsigned codes times signed x, summed by fours. The instruction takes two signed factors:
/// codes of 8 bits are multiplied less 128, and 128 times x is added.
template <int kBits>
MF_INLINE IVec idot(IVec acc, IVec codes, IVec x) {
  const int8x16_t factor = vreinterpretq_s8_s32(x);
  if constexpr (kBits < 8) {
    return vdotq_s32(acc, vreinterpretq_s8_s32(codes), factor);
  } else {
    const uint8x16_t less = veorq_u8(vreinterpretq_u8_s32(codes), vdupq_n_u8(0x80));
    const IVec minus = vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(-128), factor);
    return vsubq_s32(vdotq_s32(acc, vreinterpretq_s8_u8(less), factor), minus);
  }
}
/// Whether one instruction takes codes up to 255.
constexpr bool kDotsWholeBytes = false;
template <int kBits>
MF_INLINE IVec idot_tight(IVec acc, IVec codes, IVec x) {
  return idot<kBits>(acc, codes, x);
}

MF_INLINE FVec fzero() { return vdupq_n_f32(0.0f); }
MF_INLINE FVec fload(const float* p) { return vld1q_f32(p); }
MF_INLINE void fstore(float* p, FVec v) { vst1q_f32(p, v); }
MF_INLINE FVec fbroadcast(const float* p) { return vld1q_dup_f32(p); }
MF_INLINE FVec fconvert(IVec v) { return vcvtq_f32_s32(v); }
MF_INLINE FVec fmul(FVec a, FVec b) { return vmulq_f32(a, b); }
MF_INLINE FVec ffma(FVec a, FVec b, FVec c) { return vfmaq_f32(c, a, b); }
/// kIntLanes elements of any type.
MF_INLINE FVec fload_element(const uint8_t* p, ElementType type) {
  if (type == ElementType::kF32) return vreinterpretq_f32_u8(vld1q_u8(p));
  const uint8x8_t halves = vld1_u8(p);
  if (type == ElementType::kF16) return vcvt_f32_f16(vreinterpret_f16_u8(halves));
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(halves), 16));
}
