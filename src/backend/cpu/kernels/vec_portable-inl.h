// Vectors of eight f32 in portable C++, with the bits of vec_avx2-inl.h: two fours of
// vec_generic-inl.h, multiply-adds rounded once. Such multiply-adds are library calls where the
// compiler has no instruction for them. Included inside the namespace of one ISA; see
// kernels-inl.h.

namespace four {
#include "backend/cpu/kernels/vec_generic-inl.h"
}  // namespace four

struct Vec {
  four::Vec low;
  four::Vec high;
};
constexpr int kLanes = 8;
constexpr int kRegisters = 16;

// The operators of activation_text.h.
MF_INLINE Vec operator+(Vec a, Vec b) { return {a.low + b.low, a.high + b.high}; }
MF_INLINE Vec operator-(Vec a, Vec b) { return {a.low - b.low, a.high - b.high}; }
MF_INLINE Vec operator*(Vec a, Vec b) { return {a.low * b.low, a.high * b.high}; }
MF_INLINE Vec operator/(Vec a, Vec b) { return {a.low / b.low, a.high / b.high}; }
MF_INLINE Vec operator-(Vec a) { return {-a.low, -a.high}; }

MF_INLINE Vec vset(float x) { return {four::vset(x), four::vset(x)}; }
MF_INLINE Vec vload(const float* p) { return {four::vload(p), four::vload(p + 4)}; }
MF_INLINE void vstore(float* p, Vec v) {
  four::vstore(p, v.low);
  four::vstore(p + 4, v.high);
}
MF_INLINE Vec vload_partial(const float* p, int64_t count) {
  float values[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = p[i];
  return vload(values);
}
MF_INLINE void vstore_partial(float* p, Vec v, int64_t count) {
  float values[kLanes];
  vstore(values, v);
  for (int64_t i = 0; i < count; ++i) p[i] = values[i];
}

MF_INLINE Vec vadd(Vec a, Vec b) { return a + b; }
MF_INLINE Vec vsub(Vec a, Vec b) { return a - b; }
MF_INLINE Vec vmul(Vec a, Vec b) { return a * b; }
MF_INLINE Vec vdiv(Vec a, Vec b) { return a / b; }
/// b where either is NaN.
MF_INLINE Vec vmax(Vec a, Vec b) { return {four::vmax(a.low, b.low), four::vmax(a.high, b.high)}; }
MF_INLINE Vec vmin(Vec a, Vec b) { return {four::vmin(a.low, b.low), four::vmin(a.high, b.high)}; }
#if defined(__FP_FAST_FMAF)
#define MF_FUSED MF_INLINE
#else
// Four calls of a library: one copy of them, where inlined they are most of this file's code.
#define MF_FUSED [[gnu::noinline]] static
#endif
MF_FUSED four::Vec vfused_four(four::Vec a, four::Vec b, four::Vec c) {
  return four::vfused(a, b, c);
}
MF_INLINE Vec vfma(Vec a, Vec b, Vec c) {
  return {vfused_four(a.low, b.low, c.low), vfused_four(a.high, b.high, c.high)};
}
MF_INLINE Vec vfused(Vec a, Vec b, Vec c) { return vfma(a, b, c); }
MF_INLINE float vreduce_add(Vec v) { return four::vreduce_add(v.low + v.high); }
MF_INLINE float vreduce_max(Vec v) { return four::vreduce_max(four::vmax(v.low, v.high)); }
MF_INLINE float scalar_sqrt(float x) { return four::scalar_sqrt(x); }

/// Nearest integer, for |v| below 2^22.
MF_INLINE Vec vround(Vec v) { return {four::vround(v.low), four::vround(v.high)}; }
/// v * 2^n for integral n in [-252, 254].
MF_INLINE Vec vscale(Vec v, Vec n) {
  return {four::vscale(v.low, n.low), four::vscale(v.high, n.high)};
}

MF_INLINE Vec vload_bf16(const uint8_t* p) {
  return {four::vload_bf16(p), four::vload_bf16(p + 8)};
}
MF_INLINE Vec vload_f16(const uint8_t* p) { return {four::vload_f16(p), four::vload_f16(p + 8)}; }
#include "backend/cpu/kernels/vec_partial-inl.h"
/// Rounds to nearest even, as all of them do.
MF_INLINE void vstore_f16(uint8_t* p, Vec v) {
  four::vstore_f16(p, v.low);
  four::vstore_f16(p + 8, v.high);
}
MF_INLINE Vec vload_u8(const uint8_t* p) { return {four::vload_u8(p), four::vload_u8(p + 4)}; }
MF_INLINE Vec vload_i8(const uint8_t* p) { return {four::vload_i8(p), four::vload_i8(p + 4)}; }
/// One f16 in all lanes.
MF_INLINE Vec vset_f16(const uint8_t* p) { return {four::vset_f16(p), four::vset_f16(p)}; }

/// The lower half of lanes a, the upper b.
MF_INLINE Vec vhalves(float a, float b) { return {four::vset(a), four::vset(b)}; }
/// Eight e4m3 codes, each 256 times too small.
MF_INLINE Vec vload_e4m3(const uint8_t* p) {
  return {four::vload_e4m3(p), four::vload_e4m3(p + 4)};
}

/// Code 4 i + k of 16 bytes.
MF_INLINE int nibble_of(const uint8_t* p, int i, int k) {
  return p[2 * i + k / 2] >> (4 * (k % 2)) & 15;
}
/// 16 bytes, 32 codes: lane i of out[k] is code 4 i + k.
MF_INLINE void vdecode_nibbles(const NibbleTable& table, const uint8_t* p, Vec* out) {
  for (int k = 0; k < 4; ++k) {
    float codes[kLanes];
    for (int i = 0; i < kLanes; ++i) codes[i] = static_cast<float>(nibble_of(p, i, k));
    out[k] = vfma(vload(codes), table.scale, table.bias);
  }
}
/// The same order, of e2m1 codes times the scale of each lane.
MF_INLINE void vdecode_e2m1(const uint8_t* p, Vec scale, Vec* out) {
  constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  for (int k = 0; k < 4; ++k) {
    float values[kLanes];
    for (int i = 0; i < kLanes; ++i) values[i] = kValues[nibble_of(p, i, k)];
    out[k] = vmul(vload(values), scale);
  }
}
/// Lane i of out[j] is p[4 i + j].
MF_INLINE void vload_deinterleaved4(const float* p, Vec* out) {
  for (int j = 0; j < 4; ++j) {
    float values[kLanes];
    for (int i = 0; i < kLanes; ++i) values[i] = p[4 * i + j];
    out[j] = vload(values);
  }
}
/// Reorders 32 activations the way vdecode_nibbles orders codes.
MF_INLINE void permute_chunk(const float* x, float* out) {
  for (int k = 0; k < 4; ++k) {
    for (int i = 0; i < kLanes; ++i) out[k * kLanes + i] = x[i * 4 + k];
  }
}
/// Codes of kBits bits at `shift` of eight words.
template <int kBits>
MF_INLINE Vec vcodes(const uint8_t* words, int shift) {
  return {four::vcodes<kBits>(words, shift), four::vcodes<kBits>(words + 16, shift)};
}
/// Lane j of m[i] becomes lane i of m[j].
MF_INLINE void vtranspose(Vec* m) {
  float rows[kLanes][kLanes];
  for (int i = 0; i < kLanes; ++i) vstore(rows[i], m[i]);
  for (int j = 0; j < kLanes; ++j) {
    float column[kLanes];
    for (int i = 0; i < kLanes; ++i) column[i] = rows[i][j];
    m[j] = vload(column);
  }
}
