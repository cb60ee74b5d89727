// Vectors of four f32: 64-bit Arm with Advanced SIMD.
// Included inside the namespace of one ISA; see kernels-inl.h.

using Vec = float32x4_t;
constexpr int kLanes = 4;
constexpr int kRegisters = 32;

MF_INLINE Vec vset(float x) { return vdupq_n_f32(x); }
MF_INLINE Vec vload(const float* p) { return vld1q_f32(p); }
MF_INLINE void vstore(float* p, Vec v) { vst1q_f32(p, v); }
MF_INLINE Vec vload_partial(const float* p, int64_t count) {
  float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return vld1q_f32(lanes);
}
MF_INLINE void vstore_partial(float* p, Vec v, int64_t count) {
  float lanes[4];
  vst1q_f32(lanes, v);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

MF_INLINE Vec vadd(Vec a, Vec b) { return vaddq_f32(a, b); }
MF_INLINE Vec vsub(Vec a, Vec b) { return vsubq_f32(a, b); }
MF_INLINE Vec vmul(Vec a, Vec b) { return vmulq_f32(a, b); }
MF_INLINE Vec vdiv(Vec a, Vec b) { return vdivq_f32(a, b); }
/// b where either is NaN.
MF_INLINE Vec vmax(Vec a, Vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
MF_INLINE Vec vmin(Vec a, Vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
MF_INLINE Vec vfma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
MF_INLINE Vec vfused(Vec a, Vec b, Vec c) { return vfma(a, b, c); }
MF_INLINE float vreduce_add(Vec v) {
  const float32x2_t pair = vadd_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}
MF_INLINE float vreduce_max(Vec v) { return vmaxvq_f32(v); }
MF_INLINE float scalar_sqrt(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }

/// Nearest integer.
MF_INLINE Vec vround(Vec v) { return vrndnq_f32(v); }
/// v * 2^n for integral n in [-252, 254]; two factors, so that results may be subnormal.
MF_INLINE Vec vscale(Vec v, Vec n) {
  const int32x4_t whole = vcvtq_s32_f32(n);
  const int32x4_t half = vshrq_n_s32(whole, 1);
  const int32x4_t bias = vdupq_n_s32(127);
  const int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
  const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
  return vmulq_f32(vmulq_f32(v, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}

MF_INLINE Vec vload_bf16(const uint8_t* p) {
  const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(p));
  return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}
MF_INLINE Vec vload_f16(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
#include "backend/cpu/kernels/vec_partial-inl.h"
/// Rounds to nearest even, as all of them do.
MF_INLINE void vstore_f16(uint8_t* p, Vec v) { vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v))); }
MF_INLINE Vec vload_u8(const uint8_t* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word)));
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
}
MF_INLINE Vec vload_i8(const uint8_t* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  const int16x8_t wide = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(word)));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
/// One f16 in all lanes.
MF_INLINE Vec vset_f16(const uint8_t* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, sizeof(half));
  return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

/// The lower half of lanes a, the upper b.
MF_INLINE Vec vhalves(float a, float b) { return vcombine_f32(vdup_n_f32(a), vdup_n_f32(b)); }
/// Four e4m3 codes, each 256 times too small: halves that have the same bits.
MF_INLINE Vec vload_e4m3(const uint8_t* p) {
  uint32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  const uint16x4_t codes = vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word))));
  const uint16x4_t most = vdup_n_u16(0x3f80);
  const uint16x4_t magnitude = vand_u16(vshl_n_u16(codes, 7), most);
  const uint16x4_t nan = vand_u16(vceq_u16(magnitude, most), vdup_n_u16(0x7e00));
  const uint16x4_t sign = vand_u16(vshl_n_u16(codes, 8), vdup_n_u16(0x8000));
  return vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(vorr_u16(magnitude, nan), sign)));
}

/// 16 bytes, 32 codes: lane i of out[k] is code 8 i + k.
MF_INLINE void vdecode_nibbles(const NibbleTable& table, const uint8_t* p, Vec* out) {
  const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(p));
  const uint32x4_t mask = vdupq_n_u32(15);
  for (int k = 0; k < 8; ++k) {
    const uint32x4_t codes = vandq_u32(vshlq_u32(words, vdupq_n_s32(-4 * k)), mask);
    out[k] = vfma(vcvtq_f32_u32(codes), table.scale, table.bias);
  }
}
/// The same order, of e2m1 codes times the scale of each lane.
MF_INLINE void vdecode_e2m1(const uint8_t* p, Vec scale, Vec* out) {
  const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(p));
  const Vec factor = vdupq_n_f32(0x1p126f);
  for (int k = 0; k < 8; ++k) {
    // Two exponent bits and a fraction bit where f32 has them, 2^126 times too small.
    const uint32x4_t codes = vshlq_u32(words, vdupq_n_s32(-4 * k));
    const uint32x4_t magnitude = vandq_u32(vshlq_n_u32(codes, 22), vdupq_n_u32(7u << 22));
    const uint32x4_t sign = vandq_u32(vshlq_n_u32(codes, 28), vdupq_n_u32(0x80000000u));
    const Vec value = vmulq_f32(vreinterpretq_f32_u32(vorrq_u32(magnitude, sign)), factor);
    out[k] = vmulq_f32(value, scale);
  }
}
/// Reorders 32 activations the way vdecode_nibbles orders codes.
MF_INLINE void permute_chunk(const float* x, float* out) {
  for (int k = 0; k < 8; ++k) {
    for (int i = 0; i < 4; ++i) out[k * 4 + i] = x[i * 8 + k];
  }
}
/// Lane i of out[j] is p[4 i + j].
MF_INLINE void vload_deinterleaved4(const float* p, Vec* out) {
  const float32x4x4_t v = vld4q_f32(p);
  for (int j = 0; j < 4; ++j) out[j] = v.val[j];
}
/// Codes of kBits bits at `shift` of four words.
template <int kBits>
MF_INLINE Vec vcodes(const uint8_t* words, int shift) {
  const uint32x4_t codes = vshlq_u32(vreinterpretq_u32_u8(vld1q_u8(words)), vdupq_n_s32(-shift));
  return vcvtq_f32_u32(vandq_u32(codes, vdupq_n_u32((1u << kBits) - 1)));
}
/// Lane j of m[i] becomes lane i of m[j].
MF_INLINE void vtranspose(Vec* m) {
  const float32x4x2_t ab = vtrnq_f32(m[0], m[1]);  // a0 b0 a2 b2 | a1 b1 a3 b3
  const float32x4x2_t cd = vtrnq_f32(m[2], m[3]);
  m[0] = vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0]));
  m[1] = vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1]));
  m[2] = vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0]));
  m[3] = vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1]));
}
